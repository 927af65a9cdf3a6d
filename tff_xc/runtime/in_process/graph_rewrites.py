"""Changes a serialized graph before it is imported into this process."""

import math

# A loop body with at least this many nodes becomes a call, which costs 0.1 ms. An SGD step of a
# linear model has more nodes.
_LONG_BODY = 50
# Constants with at least this many numbers are not kept in memory.
_LARGE = 2**18
_FILLED = 'Const', 'Const', 'PlaceholderWithDefault'
_INT32 = 3  # TensorFlow's number for this dtype.


def prepare(graph_def, suffix: str, device: str) -> None:
  """Changes a graph so that it shares no functions and no state with other imported graphs.

  The ops of the graph get a device. TensorFlow no longer keeps the graph's large constants of
  a single value in memory between calls.
  """
  _call_long_bodies(graph_def)
  _fill_large_constants(graph_def.node, '')
  for function in graph_def.library.function:
    _fill_large_constants(function.node_def, ':output:0')
  _rename(graph_def, suffix)
  if device:
    for node in _nodes(graph_def):
      node.device = node.device or _device_of(node.op, device)


def part(graph_def, feeds: list[str], fetches: list[str]) -> tuple:
  """Returns the part of a graph from `feeds` to `fetches`, and the feeds that this part uses."""
  nodes = {node.name: node for node in graph_def.node}
  given = {_node_of(name) for name in feeds}
  feeds, used, kept = set(feeds), set(), {}
  left = list(fetches)
  while left:
    name = left.pop()
    tensor = name if ':' in name else f'{name}:0'
    if tensor in feeds:
      used.add(tensor)
    elif (node := nodes[_node_of(name)]).name not in kept:
      kept[node.name] = node
      left += [i for i in node.input if i[0] != '^' or i[1:] not in given]
  found = type(graph_def)(versions=graph_def.versions)
  found.library.CopyFrom(graph_def.library)
  for node in kept.values():
    inputs = [i for i in node.input if i[0] != '^' or i[1:] not in given]
    copy = found.node.add()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(inputs)
    if '_class' in copy.attr:  # '_class' names ops on the same device.
      beside = copy.attr.pop('_class').list.s
      beside = [b for b in beside if b.decode().removeprefix('loc:@') in kept]
      if beside:
        copy.attr['_class'].list.s.extend(beside)
  return found, used


def _node_of(name: str) -> str:
  """Returns the name of an input's node. For `a`, `a:1` and `^a` the name is `a`."""
  return name.removeprefix('^').partition(':')[0]


def _nodes(graph_def) -> list:
  """Returns the nodes of a graph and of its functions."""
  nodes = list(graph_def.node)
  for function in graph_def.library.function:
    nodes.extend(function.node_def)
  return nodes


# These ops always run on the CPU: ops of tf.data, and ops with a GPU kernel that sums in any
# order. Bincount's GPU kernel fails in deterministic mode.
_ON_CPU = ('Dataset', 'Iterator', 'Optional', 'SparseTensorDenseMatMul', 'Bincount')


def _device_of(op: str, device: str) -> str:
  on_cpu = any(kind in op for kind in _ON_CPU)
  return '/device:CPU:0' if on_cpu else device


def _call_long_bodies(graph_def) -> None:
  """Turns the body of each long loop into a call of a function.

  Otherwise TensorFlow inlines the body into the surrounding graph. Inlining has two drawbacks.
  First, a loop of inlined ops cannot be stopped. With a call in the loop, TensorFlow stops the
  loop after the caller has been cancelled. Second, an inlined loop makes a cycle in the graph.
  TensorFlow's oneDNN pass then visits a MaxPoolGrad before or after its MaxPool by chance. If
  the pass visits the MaxPoolGrad first, the op uses a kernel that takes ten times as long.
  """
  functions = {f.signature.name: f for f in graph_def.library.function}
  callers = {}
  for loop in _nodes(graph_def):
    if loop.op not in ('While', 'StatelessWhile'):
      continue
    body = functions[loop.attr['body'].func.name]
    name = body.signature.name
    if len(body.node_def) < _LONG_BODY:
      continue
    if name not in callers:
      body.attr['_noinline'].b = True
      callers[name] = graph_def.library.function.add()
      _call_only(callers[name], body)
    loop.attr['body'].func.name = callers[name].signature.name


def _fill_large_constants(nodes, output: str) -> None:
  """Replaces large constants of a single value, such as the zeros of a sum, by Fill ops.

  TensorFlow would keep the tensor of a constant as long as the graph exists. The dimensions of
  each Fill could be fed, so TensorFlow does not precompute the Fill. `output` is the suffix
  that follows a node's name in an input.
  """
  for node in [n for n in nodes if n.op == 'Const']:
    tensor = node.attr['value'].tensor
    filled = [v for f, v in tensor.ListFields() if f.name.endswith('_val')]
    sizes = [d.size for d in tensor.tensor_shape.dim]
    if math.prod(sizes) < _LARGE or [len(v) for v in filled] != [1]:
      continue
    value, sized, dims = [
      nodes.add(name=f'{node.name}/{part}', op=op, device=node.device)
      for part, op in zip(('value', 'sizes', 'dims'), _FILLED, strict=True)
    ]
    value.attr['value'].CopyFrom(node.attr['value'])
    value.attr['value'].tensor.tensor_shape.Clear()
    value.attr['dtype'].CopyFrom(node.attr['dtype'])
    shape = sized.attr['value'].tensor.tensor_shape
    sized.attr['value'].tensor.int_val.extend(sizes)
    sized.attr['value'].tensor.dtype = _INT32
    shape.dim.add(size=len(sizes))
    sized.attr['dtype'].type = dims.attr['dtype'].type = _INT32
    dims.attr['shape'].shape.CopyFrom(shape)
    dims.input.append(sized.name + output)
    given = [dims.name + output, value.name + output, *node.input]
    node.op = 'Fill'
    del node.input[:]
    node.input.extend(given)
    node.attr['T'].CopyFrom(node.attr['dtype'])
    node.attr['index_type'].type = _INT32
    for name in ('value', 'dtype'):
      del node.attr[name]


def _call_only(caller, callee) -> None:
  """Makes `caller` a function with the signature of `callee` that only calls `callee`."""
  caller.signature.CopyFrom(callee.signature)
  caller.signature.name = f'{callee.signature.name}_call'
  for index, attributes in callee.arg_attr.items():
    caller.arg_attr[index].CopyFrom(attributes)
  call = caller.node_def.add(name='call', op='StatefulPartitionedCall')
  call.attr['f'].func.name = callee.signature.name
  call.input.extend(arg.name for arg in callee.signature.input_arg)
  for name, args in (('Tin', callee.signature.input_arg), ('Tout', callee.signature.output_arg)):
    call.attr[name].list.type.extend(arg.type for arg in args)
  for index, arg in enumerate(callee.signature.output_arg):
    caller.ret[arg.name] = f'call:output:{index}'
  if callee.signature.is_stateful:
    caller.control_ret['call'] = 'call'
    caller.signature.control_output.append('call')


def _rename(graph_def, suffix: str) -> None:
  """Gives functions and shared state unique names.

  In a process, two functions with the same name must not have different bodies. Two variables
  or tables with the same shared name would be the same object.
  """
  library = graph_def.library
  renamed = {f.signature.name: f.signature.name + suffix for f in library.function}
  for function in library.function:
    function.signature.name = renamed[function.signature.name]
  for gradient in library.gradient:
    gradient.function_name = renamed[gradient.function_name]
    gradient.gradient_func = renamed[gradient.gradient_func]
  for node in _nodes(graph_def):
    node.op = renamed.get(node.op, node.op)
    for value in node.attr.values():
      called = [value.func] if value.HasField('func') else value.list.func
      for each in called:
        each.name = renamed.get(each.name, each.name)
    if 'shared_name' in node.attr:
      name = node.attr['shared_name'].s or node.name.encode()
      node.attr['shared_name'].s = name + suffix.encode()
