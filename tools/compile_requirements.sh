#!/bin/sh
# Resolves the packages of pyproject.toml, and writes requirements.txt, the requirements
# of the GPU variant, the cluster and the site, and uv.lock. `make requirements` calls this
# program. The program needs .venv's Python and PyPI. It installs uv, the only resolver
# with overrides, in a temporary directory.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python -m venv "$work/uv"
"$work/uv/bin/python" -m pip install --quiet --disable-pip-version-check uv
# Ignore the uv settings of this machine and user, so that only pyproject.toml configures uv.
export XDG_CONFIG_HOME="$work" XDG_CONFIG_DIRS="$work"

# resolve OUT PYTHON_VERSION [ARGUMENT...] writes the file OUT with the overrides of
# pyproject.toml. TFF's wheel requires glibc 2.31.
resolve() {
  out=$1 version=$2
  shift 2
  "$work/uv/bin/uv" pip compile --quiet --upgrade "$@" \
    --python-version "$version" \
    --python-platform x86_64-manylinux_2_31 --no-emit-index-url \
    --generate-hashes --annotation-style line \
    --custom-compile-command 'make requirements' --output-file "$out"
}

# Resolves a file for Python 3.10 that is also valid for 3.11. A second resolution with the
# versions of the first one checks that Python 3.11 needs no more packages.
both() {
  target=$1
  shift
  resolve "$work/3.10.txt" 3.10 "$@"
  resolve "$work/3.11.txt" 3.11 "$@" --constraint "$work/3.10.txt"
  for file in 3.10 3.11; do
    grep -o '^[A-Za-z0-9].*==[^ ]*' "$work/$file.txt" | sort > "$work/$file.names"
  done
  extra=$(comm -13 "$work/3.10.names" "$work/3.11.names")
  if [ -n "$extra" ]; then
    echo "error: Python 3.11 needs what 3.10 does not ($extra): name it in pyproject.toml" >&2
    exit 2
  fi
  cp "$work/3.10.txt" "$target.tmp"
  mv "$target.tmp" "$target"
}

named='--group pyproject.toml:dev'
both requirements.txt $named
both requirements-gpu.txt requirements-gpu.in $named --override overrides-gpu.txt
resolve requirements-site.txt 3.11 requirements-site.in
# This file contains only packages that requirements.txt lacks, with versions that fit
# requirements.txt.
known=$(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package=\1/p' requirements.txt)
both requirements-cluster.txt requirements-cluster.in \
  --constraint requirements.txt $known

# Resolve uv.lock with these versions as constraints, and then again without constraints.
# The second resolution keeps the versions, because uv keeps the versions of a lock.
mkdir "$work/lock"
{
  sed '/^\[tool\.uv\]$/q' pyproject.toml
  echo 'constraint-dependencies = ['
  sed -n 's/^\([A-Za-z0-9._-]*==[^ ]*\).*/  "\1",/p' \
    requirements.txt requirements-cluster.txt
  echo ']'
  sed '1,/^\[tool\.uv\]$/d' pyproject.toml
} > "$work/lock/pyproject.toml"
"$work/uv/bin/uv" lock --quiet --project "$work/lock"
cp "$work/lock/uv.lock" uv.lock.tmp
mv uv.lock.tmp uv.lock
"$work/uv/bin/uv" lock --quiet
