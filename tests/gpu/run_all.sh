#!/usr/bin/env bash
# Everything that needs a GPU, in one go: build, tests on the real driver, soak, memory checker, examples, benchmarks.
# usage: tests/gpu/run_all.sh OUTPUT_FOLDER [step ...]
# Steps: tests one_gpu soak memcheck racecheck heat task_overhead partitions bench_heat composite bench_graphs (default:
# all). Needs an environment with the build requirements of pyproject.toml; prints a short table last. What needs two
# GPUs is left out where there is one.
set -u
out=${1:?usage: tests/gpu/run_all.sh OUTPUT_FOLDER [step ...]}
shift
steps=" ${*:-tests one_gpu soak memcheck racecheck heat task_overhead partitions bench_heat composite bench_graphs} "
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
gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU')

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
heat() {  # heat NAME OPTION...: the example on places of one kind, compared with NumPy
  local name=$1
  shift
  step "$name" "$python" examples/heat.py --machine cuda --size 4096 --output "$out/$name" "$@"
  grep "agrees with NumPy" "$out/$name.log" >> "$summary"
}
if wanted heat; then
  for dtype in float32 int32; do
    heat "heat_one_gpu_$dtype" --devices 1 --dtype $dtype
    heat "heat_partitions_$dtype" --places green:16 --dtype $dtype
    heat "heat_eight_sms_$dtype" --places green:8x8 --dtype $dtype
    if [ "$gpus" -gt 1 ]; then
      heat "heat_two_gpus_$dtype" --devices 2 --dtype $dtype
      heat "heat_partitions_of_two_gpus_$dtype" --places green:16 --devices 2 --dtype $dtype
    fi
  done
fi
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
if wanted bench_heat; then
  step bench_heat "$python" -m benchmarks heat --machine cuda --json "$out/heat.json" --plot "$out/heat.png"
  tail -n 60 "$out/bench_heat.log" >> "$summary"
fi
if wanted composite && [ "$gpus" -gt 1 ]; then
  step bench_composite "$python" -m benchmarks composite --machine cuda --json "$out/composite.json"
  tail -n 16 "$out/bench_composite.log" >> "$summary"
fi
if wanted bench_graphs; then
  step bench_graphs "$python" -m benchmarks graphs --machine cuda --json "$out/graphs.json"
  tail -n 90 "$out/bench_graphs.log" >> "$summary"
fi
cat "$summary"
