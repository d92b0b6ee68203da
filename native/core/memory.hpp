// Memory of instances: freed blocks handed out again in stream order, and room made when a place is full.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/data.hpp"
#include "core/runtime.hpp"

namespace stf_places {

class Memory {
 public:
  explicit Memory(Context& context) : context_(context) {}

  // Gives the instance memory of its place for use on `stream`: a freed block (its points are put on the
  // instance) or new memory. When the place is full: frees what is cached, drops shared instances, writes the
  // least recently used modified ones to the host, and tries again; then throws out_of_memory naming holders.
  void allocate(Data& data, Instance& instance, Stream& stream);
  // Takes the instance's memory back; its points stay with the block.
  void recycle(Data& data, Instance& instance);
  // Gives every cached block back to the driver, in stream order; what is not freed in stream order (blocks
  // of the host, page-mapped ranges) is taken by the caller.
  void release_all();
  Runtime::Retired take_unordered();
  // The users of all cached blocks are done, or ordered before whatever comes.
  void forget_points();
  // Gives nothing back in order: the device is lost.
  void forget_all();

 private:
  struct Block {
    Address address = 0;
    std::size_t nbytes = 0;
    std::vector<PointRef> points;
  };
  using Key = std::pair<std::pair<DataPlace::Kind, int>, std::size_t>;
  // A block on a composite place.
  struct Range {
    const PageMap* map;
    Block block;
  };
  // How an attempt to allocate on a place ended where one of its devices was short of room.
  enum class Outcome { fits, short_here, short_elsewhere };

  bool take_cached(const DataPlace& place, std::size_t nbytes, Stream& stream, Instance& instance);
  bool take_range(const PageMap& map, Instance& instance);
  Status ask_driver(const DataPlace& place, std::size_t nbytes, Stream& stream, Address* out);
  Address make_room_around(const Data& wanted, const DataPlace& place, const Failure& failure);
  Address make_room(const Data& wanted, const DataPlace& place, Stream& stream, Failure failure);
  // Frees what can be freed on `tight`, `place` itself or one of its devices, until it fits.
  Outcome make_room_on(const DataPlace& tight, const Data& wanted, const DataPlace& place, Stream& stream,
                       Address* out, Failure* failure);
  std::size_t free_cached(const DataPlace& place, Stream& stream);
  std::size_t free_ranges(int device);
  bool evict_one(const DataPlace& place, Stream& stream, InstanceState state);
  void trim(int device);
  void free_block(const DataPlace& place, Block& block, Stream& stream);
  void free_waited(const DataPlace& place, Block& block);
  void wait_for_users(const Block& block);
  [[noreturn]] void refuse(const Data& wanted, const DataPlace& place, const DataPlace& tight,
                           Failure failure) const;

  Context& context_;
  std::map<Key, std::vector<Block>> cached_;
  std::vector<Range> ranges_;  // cached as well
};

}  // namespace stf_places
