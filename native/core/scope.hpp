// Scopes: work that is recorded, and runs as one operation of the context around it.
//
// A scope has a context of its own, which records into graphs. Data of the contexts around it are taken into
// it by the first task that uses them: an instance of theirs stays where it is for as long as the scope
// lives, and the scope works on that memory, as on memory that it was given. When the scope ends, the value
// is brought back there. So to what is around it a scope is one task, with the accesses that its tasks made
// first; a loop goes round, and a graph is launched again, from the state that it left.
//
// A graph scope stands in a context on streams and runs on a stream of it. A loop stands in a scope, and
// becomes a node of its graph, or, where the device cannot run it, cuts the graph in two.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/context.hpp"

namespace stf_places {

// How data of the context around came into a scope.
struct Import {
  Data* outer = nullptr;
  Data* inner = nullptr;
  std::vector<Instance*> homes;  // of `outer`, whose memory is used
  AccessMode mode = AccessMode::none;
  bool read_only = false;

  // Whether the value is needed is decided by the first access: who writes first reads what it wrote.
  void note(AccessMode access) {
    if (mode == AccessMode::none)
      mode = access;
    else if (writes(access))
      mode = static_cast<AccessMode>(static_cast<int>(mode) | static_cast<int>(AccessMode::write));
  }
};

// One term of a loop's condition: `data` compared with a threshold. The address comes later.
struct ConditionTerm {
  Data* data = nullptr;
  LoopCondition::Term term;
};

class Scope : public std::enable_shared_from_this<Scope> {
 public:
  enum class Kind : std::uint8_t { graph, while_loop, repeat };
  enum class State : std::uint8_t { recording, ready, released };

  // The innermost scope of `outer` from now on, which records itself where `kind` is a loop. `count`: rounds.
  // `logged`: so that it can be described; loops are as what is around them.
  static std::shared_ptr<Scope> open(const std::shared_ptr<Context>& outer, Kind kind, std::uint64_t count,
                                     bool logged);
  ~Scope();
  Scope(const Scope&) = delete;

  const std::shared_ptr<Context>& context() const { return inner_; }
  State state() const { return state_; }
  // Where its work is, or begins.
  int device() const { return inner_->launch_device(); }
  const std::shared_ptr<Context>& outermost() const;

  // What stands here for data of a context around, to be used on `place`.
  Data& bring(Data& data, const DataPlace& place);
  // The same before any task does. What is pushed for reading only nothing here writes, so each place that
  // reads it has a copy of its own.
  void push(Data& data, AccessMode mode, const DataPlace& place);
  // Throws when nothing more can be recorded here.
  void require_taking(const Task& task) const;

  // ---- Loops -------------------------------------------------------------------------------------------
  // Ends the body but for its condition: why the device cannot run the loop, or "".
  const std::string& settle_body(const Interrupt& interrupt);
  // The condition; `kernel` sets it on the device (0 on a simulated machine). Once.
  void continue_while(const std::vector<ConditionTerm>& terms, bool any, Address kernel,
                      const Interrupt& interrupt);
  // The loop's condition for a kernel of the caller's, which has to set it at the end of each round.
  ConditionHandle condition(const Interrupt& interrupt);
  void set_kernel(Address kernel) { kernel_ = kernel; }
  // Why the host drives the loop; "" when the device does.
  const std::string& obstacle() const { return obstacle_; }
  void set_obstacle(std::string why) { obstacle_ = std::move(why); }

  // ---- Ends --------------------------------------------------------------------------------------------
  // Grows with what is recorded.
  std::uint64_t recorded() const {
    return inner_->statistics_.tasks + inner_->statistics_.copies + pieces_.size() + inline_loops_.size();
  }
  // What was recorded cannot run any more: the end will say so.
  void spoil(std::string why) { spoiled_ = std::move(why); }
  // Ends the recording. A loop becomes a part of the scope around it; a graph is ready to run.
  void finish(const Interrupt& interrupt);
  void require_no_open_task() const { inner_->require_no_open_task("a scope cannot begin"); }
  // Forgets what was recorded: nothing of it has run, and data are as they were.
  void discard() noexcept;
  // Runs it, as one operation of the context around it.
  void run(const Interrupt& interrupt);
  // Whether all that was launched is done.
  bool idle();
  // Waits for the last launch and gives everything back.
  void release(const Interrupt& interrupt);
  // Releases those that are idle, or all of them after a wait.
  static void reap(std::vector<std::weak_ptr<Scope>>& spent, bool wait, const Interrupt& interrupt);
  // To be released once it is idle.
  void leave_behind();

  // The only graph and executable of a scope that is ready; throws where it runs as several.
  GraphHandle graph() const;
  GraphExecHandle executable() const;
  StreamHandle stream();
  // What was recorded: in a scope that was opened for it, once it is ready.
  GraphDescription describe() const;

 private:
  // A part of what was recorded, in order: a graph, or a loop.
  struct Piece {
    GraphHandle graph = 0;
    GraphExecHandle exec = 0;
    GraphExecs::Size size;  // 0 where other graphs cannot use the executable
    std::shared_ptr<Scope> loop;
  };

  Scope(std::shared_ptr<Context> outer, Kind kind, std::uint64_t count);
  bool is_loop() const { return kind_ != Kind::graph; }
  Data* stand_in(Data& data) const;
  Data& neighbour(Data& data, const DataPlace& place);
  Import& import(Data& outer, const DataPlace& place, bool read_only);
  void add_home(Import& import, const DataPlace& place);
  static DataPlace home_for(const Context& outer, const Data& data, const DataPlace& place);
  void unlink() noexcept;
  void require_recording(const char* what) const;

  void write_back();
  void cut();
  void close_loop(const Interrupt& interrupt);
  std::string find_obstacle() const;
  bool read_on_device(ConditionTerm& term, int device);
  void read_on_host(std::vector<ConditionTerm>& terms, const Interrupt& interrupt);
  void make_counter(int device);
  std::uint64_t rounds_in_one() const;
  void put_round(GraphHandle graph, std::vector<NodeHandle>& before);
  NodeHandle put_loop(GraphHandle graph, std::span<const NodeHandle> after, bool in_loop);

  void make_ready();
  void make_executable(Piece& piece);
  void run_pieces(Stream& stream, const Interrupt& interrupt);
  void run_rounds(Stream& stream, const Interrupt& interrupt);
  void order_memory(Stream& stream);
  void fill_task(Task& task) const;
  void mark_poisoned() noexcept;
  void release_pieces();
  void describe(GraphDescription& out, int group) const;
  void describe_piece(const Piece& piece, GraphDescription& out, int group) const;

  std::shared_ptr<Context> outer_;
  std::shared_ptr<Context> inner_;
  Kind kind_;
  State state_ = State::recording;
  std::vector<std::unique_ptr<Import>> imports_;
  std::vector<Piece> pieces_;
  std::vector<std::shared_ptr<Scope>> inline_loops_;  // that are nodes of the graphs
  GraphExecs::Size before_{};                         // recorded in earlier pieces
  bool plain_ = true;                                 // the graph being recorded has no loops
  std::string spoiled_;                               // why what was recorded cannot run

  std::uint64_t count_;
  LoopCondition when_{};
  ConditionHandle condition_ = 0;
  Address kernel_ = 0;
  bool settled_ = false;  // the body has ended
  bool asked_ = false;    // the condition is known
  bool reading_ = false;  // its values are being fetched
  std::string obstacle_;

  std::vector<Data*> counters_;  // of the outermost context: of the loops in a graph scope
  bool ordered_ = false;         // the first launch has been
  Stream* last_ = nullptr;       // of the last launch; a point of it would cost an event each time
};

}  // namespace stf_places
