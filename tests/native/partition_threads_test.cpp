// Partitions made, used, replaced and let go of by several threads at once: for the thread sanitizer too.
#include <atomic>
#include <random>
#include <thread>

#include "core/partitions.hpp"
#include "core/places.hpp"
#include "core/runtime.hpp"
#include "core/streams.hpp"
#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

SplitRequest request_of(std::vector<int> counts) {
  SplitRequest request;
  request.counts = std::move(counts);
  request.text = "a test's request";
  return request;
}

struct Setup {
  Bench machine{h200(1)};
  std::shared_ptr<Runtime> runtime = std::make_shared<Runtime>(machine.driver, RuntimeSettings{});
  // How many threads hold each SM.
  std::vector<std::atomic<int>> users = std::vector<std::atomic<int>>(132);

  // Work on each place, and no SM in two hands at once.
  void use(const Partitions::Holders& places) {
    std::vector<int> mine;
    StreamPool pool(runtime);
    for (const auto& place : places) {
      for (int id : machine->sm_ids(place->context->handle())) mine.push_back(id);
      CHECK_OK(machine.busy(pool.next(place_on(place->context), true), 5, 1));
    }
    for (int id : mine) CHECK_EQUAL(users[static_cast<std::size_t>(id)]++, 0);
    std::this_thread::yield();
    for (int id : mine) --users[static_cast<std::size_t>(id)];
  }
};

void make_and_let_go(Setup& setup, unsigned seed, std::atomic<int>& granted) {
  std::mt19937 random(seed);
  for (int i = 0; i < 150; ++i) {
    std::vector<int> counts(1 + random() % 3, static_cast<int>(8 * (1 + random() % 4)));
    try {
      const auto made = setup.runtime->partitions().make(0, request_of(counts), nullptr, {});
      ++granted;
      setup.use(made.places);
    } catch (const Error& error) {
      CHECK_EQUAL(static_cast<int>(error.kind), static_cast<int>(ErrorKind::partition));
    }
  }
}

void repartition_again(Setup& setup, unsigned seed, std::atomic<int>& granted) {
  std::mt19937 random(seed);
  Partitions::Holders places;
  for (int i = 0; i < 100; ++i) {
    const std::vector<int> counts(1 + random() % 2, static_cast<int>(8 * (1 + random() % 2)));
    try {
      const auto made = places.empty()
                            ? setup.runtime->partitions().make(0, request_of(counts), nullptr, {})
                            : setup.runtime->partitions().repartition(places, request_of(counts), {});
      ++granted;
      for (const auto& old : places) CHECK_EQUAL(old->closed(), true);
      places = made.places;
      setup.use(places);
    } catch (const Error& error) {
      CHECK_EQUAL(static_cast<int>(error.kind), static_cast<int>(ErrorKind::partition));
    }
  }
}

}  // namespace

TEST(threads_that_make_and_let_go_never_share_an_sm) {
  Setup setup;
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 3; ++seed)
    threads.emplace_back([&, seed] { make_and_let_go(setup, seed, granted); });
  threads.emplace_back([&] { repartition_again(setup, 9, granted); });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQUAL(granted > 100, true);
}

TEST(places_outlive_the_runtime_that_made_them) {
  Partitions::Holders places;
  {
    Setup setup;
    places = setup.runtime->partitions().make(0, request_of({8, 16}), nullptr, {}).places;
    setup.use(places);
  }
  CHECK_EQUAL(places[1]->context->sm_count(), 16);
}

int main() { return check::run_all(); }
