#!/bin/sh
# Creates .venv with the packages that a requirements file pins. If .venv has these
# packages, the program ends at once. `make venv` calls this program. Three environment
# variables change its work:
#   REQUIREMENTS  the requirements file. The default is the file of the existing .venv, or
#                 requirements.txt without a .venv.
#   MORE          a second file, whose packages are added. The default is the file that was
#                 added before, if any.
#   PYTHON        the Python interpreter.
# If the program fails, it prints one sentence and ends with exit status 2.
set -eu
cd "$(dirname "$0")/.."
stamp=.venv/installed.sha256  # the output of sha256sum for the installed requirements files
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

# unchanged LINE: whether the stamp has this line, and the line's file still has this checksum.
unchanged() {
  sed -n "$1p" "$stamp" 2>/dev/null | sha256sum --check --status 2>/dev/null
}

# The stamp is written after the installation, so an interrupted installation is repeated.
if [ "$installed" = "$requirements" ] && unchanged 1 &&
  .venv/bin/python -c '' 2>/dev/null; then
  if [ "$added" = "$more" ] && { [ -z "$more" ] || unchanged 2; }; then
    exit 0
  fi
  has_base=yes
fi

# install FILE: installs the packages of FILE, and checks the hashes in FILE.
install() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --no-input --no-deps --require-hashes -r "$1" ||
    fail 'the install failed: see above, check the network and the free disk space, and run the same command again'
}

# Adds the packages of the file $more, if set, to a .venv that has the packages of the first file.
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

# Prints nothing for a suitable interpreter, and otherwise the reason why it is unsuitable.
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
  # Run each candidate, because a version manager's command on PATH may only print a hint.
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
