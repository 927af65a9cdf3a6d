#!/bin/sh
# Resolves requirements.in into requirements.txt, and the GPU variant, the
# cluster's additions and what the site needs, anew.
# `make requirements` calls it. It needs .venv's Python and PyPI. It installs
# uv, the only resolver with overrides, in a temporary directory.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python -m venv "$work/uv"
"$work/uv/bin/python" -m pip install --quiet --disable-pip-version-check uv

# resolve OUT PYTHON_VERSION IN [OPTION...]; TFF's wheel requires glibc 2.31.
resolve() {
  out=$1 version=$2 in=$3
  shift 3
  "$work/uv/bin/uv" pip compile --quiet --upgrade --no-config "$in" "$@" \
    --override overrides.txt --python-version "$version" \
    --python-platform x86_64-manylinux_2_31 --no-emit-index-url \
    --generate-hashes --annotation-style line \
    --custom-compile-command 'make requirements' --output-file "$out"
}

# The file is resolved for 3.10 and is valid for 3.11, too. The second
# resolution checks this: with the first's versions it must add no package.
both() {
  target=$1 source=$2
  shift 2
  resolve "$work/3.10.txt" 3.10 "$source" "$@"
  resolve "$work/3.11.txt" 3.11 "$source" --constraint "$work/3.10.txt" "$@"
  for file in 3.10 3.11; do
    grep -o '^[A-Za-z0-9].*==[^ ]*' "$work/$file.txt" | sort > "$work/$file.names"
  done
  extra=$(comm -13 "$work/3.10.names" "$work/3.11.names")
  if [ -n "$extra" ]; then
    echo "error: Python 3.11 needs what 3.10 does not ($extra): name it in $source" >&2
    exit 2
  fi
  cp "$work/3.10.txt" "$target.tmp"
  mv "$target.tmp" "$target"
}

both requirements.txt requirements.in
both requirements-gpu.txt requirements-gpu.in --override overrides-gpu.txt
resolve requirements-site.txt 3.11 requirements-site.in
# Only what requirements.txt does not have, at versions that go with it.
known=$(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package=\1/p' requirements.txt)
both requirements-cluster.txt requirements-cluster.in \
  --constraint requirements.txt $known
