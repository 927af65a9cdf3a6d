#!/bin/sh
# Checks that Bazel builds, runs and tests the project without a network.
#   sh tools/check_bazel.sh        builds all targets, trains one round, runs two folders' tests
#   sh tools/check_bazel.sh all    runs all tests that have a target
# The program needs .venv (make venv) and Bazel 4 to 7, such as Debian's bazel-bootstrap.
# It writes only to a temporary directory, and leaves no Bazel server running.
set -eu
cd "$(dirname "$0")/.."
command -v bazel > /dev/null || {
  echo "bazel is not installed; on Debian: apt-get install bazel-bootstrap" >&2
  exit 2
}
[ -x .venv/bin/python ] || { echo "there is no .venv; run make venv" >&2; exit 2; }

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export VIRTUAL_ENV="$PWD/.venv"

# Make downloads fail: no proxy answers at this address.
export http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9

run() {
  # With --batch, Bazel leaves no server running.
  bazel --batch --output_user_root="$work/bazel" "$@"
}

options="--symlink_prefix=$work/link-"
run build $options //...
run run $options //launch:list -- algorithms > "$work/algorithms"
grep -q '^fedss ' "$work/algorithms"
run run $options //launch:train -- --task=glyphs --algorithm=fedss --rounds=1 \
  --eval_every=1 --run_dir="$work/run"
test -s "$work/run/summary.json"
tests="//tests:measure_test //tests:report_test"
[ "${1:-}" != all ] || tests=//...
run test $options $tests
echo "Bazel: built, run and tested"
