#!/usr/bin/env bash
# Everything that needs a GPU, in one go: build, tests on the real driver, soak, memory checker, examples, benchmarks.
# usage: tests/gpu/run_all.sh OUTPUT_FOLDER [step ...]
# Steps: tests one_gpu soak memcheck racecheck heat task_overhead partitions (default: all). Needs an environment with the
# build requirements of pyproject.toml; prints a short table last.
set -u
out=${1:?usage: tests/gpu/run_all.sh OUTPUT_FOLDER [step ...]}
shift
steps=" ${*:-tests one_gpu soak memcheck racecheck heat task_overhead partitions} "
python=${PYTHON:-python3}
pytest="$python -m pytest -q -m gpu -p no:cacheprovider -p no:benchmark"
# Without Warp its tests cannot even be collected.
"$python" -c "import warp" 2> /dev/null ||
  pytest+=" --ignore tests/sim/test_warp_interop.py --ignore tests/sim/test_examples.py --ignore tests/gpu/test_warp_on_gpu.py"
short="tests/sim/test_flows.py tests/sim/test_tasks.py tests/sim/test_data.py tests/sim/test_host_launch.py"
short+=" tests/sim/test_green_places.py tests/sim/test_green_contexts.py"
short+=" tests/sim/test_repartition.py tests/sim/test_place_lifetimes.py"
mkdir -p "$out"
summary="$out/summary.txt"
: > "$summary"
export STF_PLACES_DRIVER=cuda

step() {  # step NAME COMMAND...: runs it into NAME.log and notes how it ended, with the last lines
  local name=$1 began=$SECONDS how=FAILED
  shift
  if "$@" > "$out/$name.log" 2>&1; then how=ok; fi
  echo "== $name: $how, $((SECONDS - began)) s" >> "$summary"
  grep -E "^(FAILED|ERROR)|passed|failed|ERROR SUMMARY|callbacks" "$out/$name.log" | tail -n 12 >> "$summary"
  if [ "$how" = FAILED ]; then tail -n 60 "$out/$name.log"; fi
}
wanted() { [[ "$steps" == *" $1 "* ]]; }

step install "$python" -m pip install -q --no-build-isolation --no-deps -e .
wanted tests && step tests $pytest --maxfail=15 tests
wanted one_gpu && step one_gpu env CUDA_VISIBLE_DEVICES=0 $pytest --maxfail=15 tests
wanted soak && STF_PLACES_SOAK_SECONDS=30 step soak "$python" -m pytest -q -s -p no:cacheprovider -p no:benchmark \
  tests/sim/test_progress.py
wanted memcheck && step memcheck timeout 300 compute-sanitizer --tool memcheck --error-exitcode 9 $pytest -k "not hundred and not piles" $short
# cuda.core asks newer drivers' functions of this one, which the checker would report.
wanted memcheck && step memcheck_cuda_core timeout 120 compute-sanitizer --tool memcheck --report-api-errors no \
  --error-exitcode 9 $pytest tests/sim/test_verify_places.py
wanted racecheck && step racecheck timeout 200 compute-sanitizer --tool racecheck --error-exitcode 9 \
  $pytest tests/gpu/test_cuda_work.py
wanted heat && step heat "$python" examples/heat.py --size 4096 --output "$out/heat" && tail -n 6 "$out/heat.log" >> "$summary"
if wanted task_overhead; then
  step task_overhead "$python" -m benchmarks task_overhead --machine cuda --json "$out/task_overhead.json"
  tail -n 25 "$out/task_overhead.log" >> "$summary"
fi
if wanted partitions; then
  for example in concurrent_kernels latency_isolation; do
    step "$example" "$python" "examples/$example.py" --machine cuda
    tail -n 9 "$out/$example.log" >> "$summary"
  done
  for workload in partitions concurrent latency isolation; do
    step "bench_$workload" "$python" -m benchmarks "$workload" --machine cuda --json "$out/$workload.json"
    tail -n 44 "$out/bench_$workload.log" >> "$summary"
  done
fi
cat "$summary"
