#!/usr/bin/env bash
# Everything that needs a GPU, in one go: build, tests on the real driver, examples, benchmarks.
# usage: tests/gpu/run_all.sh OUTPUT_FOLDER [pytest arguments]
# Needs an environment with the build requirements of pyproject.toml; prints a short table last.
set -u
out=${1:?usage: tests/gpu/run_all.sh OUTPUT_FOLDER [pytest arguments]}
shift
python=${PYTHON:-python3}
mkdir -p "$out"
summary="$out/summary.txt"
: > "$summary"

step() {  # step NAME COMMAND...: runs it into NAME.log and notes how it ended
  local name=$1 began=$SECONDS
  shift
  if "$@" > "$out/$name.log" 2>&1; then
    echo "$name: ok, $((SECONDS - began)) s" >> "$summary"
  else
    echo "$name: FAILED, $((SECONDS - began)) s" >> "$summary"
    tail -n 40 "$out/$name.log"
  fi
}

export STF_PLACES_DRIVER=cuda
step install "$python" -m pip install -q --no-build-isolation --no-deps -e .
step tests "$python" -m pytest -q -m gpu --maxfail=15 -p no:cacheprovider -p no:benchmark tests "$@"
grep -E "^(FAILED|ERROR)|passed|failed" "$out/tests.log" | tail -n 30 >> "$summary"
if "$python" -c "import warp" 2> /dev/null; then
  step heat "$python" examples/heat.py --size 4096 --output "$out/heat"
  tail -n 12 "$out/heat.log" >> "$summary"
fi
step task_overhead "$python" -m benchmarks task_overhead --machine cuda --json "$out/task_overhead.json"
tail -n 15 "$out/task_overhead.log" >> "$summary"
cat "$summary"
