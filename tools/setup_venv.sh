#!/bin/sh
# Creates .venv with the packages that a requirements file pins. Returns at once
# if this has been done. `make venv` calls it. REQUIREMENTS names the file (by
# default the one that .venv was made from, else requirements.txt); MORE names a
# second file, whose packages are added (by default the one that was added
# before, if any); PYTHON names the interpreter. If it fails, it prints one
# sentence; the exit status is 2.
set -eu
cd "$(dirname "$0")/.."
stamp=.venv/installed.sha256  # sha256sum's lines for the requirements files
installed=$(sed -n '1s/^[^ ]*  //p' "$stamp" 2>/dev/null || true)
added=$(sed -n '2s/^[^ ]*  //p' "$stamp" 2>/dev/null || true)
requirements=${REQUIREMENTS:-${installed:-requirements.txt}}
more=${MORE:-$added}

fail() {
  echo "error: $1" >&2
  exit 2
}

if [ "$(uname -s) $(uname -m)" != 'Linux x86_64' ]; then
  fail "TensorFlow Federated runs on Linux x86-64 only and this is $(uname -s) $(uname -m): use such a machine, a virtual one or a container"
fi

# unchanged LINE: whether the stamp's line is there and true of its file.
unchanged() {
  sed -n "$1p" "$stamp" 2>/dev/null | sha256sum --check --status 2>/dev/null
}

# A stamp's line is written last, so that an interrupted install is repeated.
if [ "$installed" = "$requirements" ] && unchanged 1 &&
  .venv/bin/python -c '' 2>/dev/null; then
  if [ "$added" = "$more" ] && { [ -z "$more" ] || unchanged 2; }; then
    exit 0
  fi
  has_base=yes
fi

# install FILE: adds its packages, at the hashes that it pins.
install() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --no-input --no-deps --require-hashes -r "$1" ||
    fail 'the install failed: see above, check the network and the free disk space, and run the same command again'
}

# Adds the packages of $more, if there are any, to a .venv that has the others.
add_more() {
  if [ -n "$more" ]; then
    echo "Adding $more to .venv ..."
    { sha256sum "$requirements" && echo "interrupted  $more"; } > "$stamp"
    install "$more"
    sha256sum "$requirements" "$more" > "$stamp"
  fi
}

if [ -n "${has_base:-}" ]; then
  add_more
  exit 0
fi

if grep -q '^uv = ' .venv/pyvenv.cfg 2>/dev/null; then
  fail ".venv was made by uv, and would be deleted: run commands with 'uv run', or remove it (rm -r .venv) and run the same command again"
fi

# Prints nothing if the interpreter is suitable, else the reason why not.
check='
import os, sys
version = "%d.%d" % sys.version_info[:2]
try:
  libc = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
  old = [int(x) for x in libc.split(".")[:2]] < [2, 31]
except (AttributeError, IndexError, OSError, ValueError):
  libc, old = "none", True
if version not in ("3.10", "3.11"):
  print("is Python " + version)
elif sys.maxsize < 2**32:
  print("is a 32-bit program")
elif old:
  print("has the C library glibc " + libc + ", and 2.31 or newer is needed")
else:
  try:
    import ensurepip, venv
  except ImportError:
    print("lacks its venv module: apt install python" + version + "-venv")
'
python=
seen=
for candidate in ${PYTHON:-python3.11 python3.10 python3 python}; do
  # To be on PATH is not enough: a version manager's shim may only print a hint.
  if reason=$("$candidate" -c "$check" 2>/dev/null); then
    if [ -z "$reason" ]; then
      python=$candidate
      break
    fi
    seen="$seen${seen:+; }$candidate $reason"
  fi
done
if [ -z "$python" ]; then
  fail "no usable Python 3.10 or 3.11 (${seen:-${PYTHON:-none on PATH}}): install one (Ubuntu 22.04, Debian 12: apt install python3 python3-venv), or name it as in 'make venv PYTHON=/path/to/python3.11', or use uv, whose 'uv sync' brings a Python 3.11"
fi

echo "Installing $requirements into .venv with $("$python" --version)" \
  '(some minutes, 2.5 GB on disk) ...'
rm -f "$stamp"
"$python" -m venv --clear .venv ||
  fail "$python could not create .venv: see above, and check the free disk space"
install "$requirements"
sha256sum "$requirements" > "$stamp"
add_more
