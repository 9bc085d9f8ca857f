// Threads that work through a step's phases together, made for machines that are not theirs alone.
//
// A phase is a number of items that may be done in any order by anybody; the next phase begins when all are done. Every
// thread starts in a stretch of its own and takes from the others' ends when it has run out. Nobody waits for a thread
// that has not taken an item: helpers that are asleep, late or without a core are simply not missed, not even at the end
// of a step. Only the thread that lost its core in the middle of an item is waited for, at first spinning, then asleep,
// so that the kernel can give it the core that waits.
//
// A static split with a barrier lets each such loss stop everybody: with one busy neighbour on two cores a peer's pool
// keeps 0.12 of its quiet throughput. Here, when such waits take up half of the time, the caller works alone for a while,
// leaving the other core to the neighbour, and tries again later.
//
// Which thread does an item changes no bit of its result; the clock is read for these waits only.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "aligned.h"

namespace reprise {

using Work = void (*)(void* context, int layer, int item, int thread);

class Team {
public:
    Team(int num_threads, int max_phases);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int num_threads() const { return num_threads_; }
    int max_phases() const { return max_phases_; }

    // A program is built by `begin` and `add`, and worked through by `run`, which returns when every item is done.
    void begin(void* context);
    void add(Work work, int layer, int num_items);
    void run();

    // Nanoseconds of each phase of the last program as the caller saw them, where `measure` was set; for profiles.
    bool measure = false;
    std::vector<int64_t> phase_ns;

    // How often a thread waited long for another's item, and how many programs the caller ran alone because of it.
    int64_t num_stalls() const { return num_stalls_.load(std::memory_order_relaxed); }
    int64_t num_solo_runs() const { return num_solo_runs_; }

private:
    struct Phase;
    struct Stretch;

    void help(int thread);
    bool work_through(int thread, uint32_t epoch);
    int take(int phase, int thread, uint32_t epoch);
    bool wait_for_phase(Phase& phase, int thread, uint32_t epoch);
    uint32_t wait_for_program(uint32_t last_epoch);
    bool should_run_alone();
    void judge_run(int64_t duration_ns, bool alone);

    const int num_threads_;
    const int max_phases_;
    Phase* phases_ = nullptr;        // [max_phases]
    Stretch* stretches_ = nullptr;   // [max_phases, num_threads]
    void* context_ = nullptr;
    int num_taking_part_ = 1;
    uint32_t epoch_ = 0;             // of the program being built or run

    alignas(64) std::atomic<uint32_t> published_{0};  // epoch that helpers may work on
    std::atomic<int> num_phases_{0};
    std::atomic<int> num_asleep_{0};
    std::atomic<bool> is_closing_{false};
    alignas(64) std::atomic<int> num_waiting_{0};     // asleep within a phase
    std::atomic<int64_t> num_stalls_{0};

    int64_t stalled_ns_ = 0;  // of the caller, in the program being run
    int64_t alone_until_ns_ = 0, alone_for_ns_ = 0;
    int num_bad_runs_ = 0;
    int64_t num_solo_runs_ = 0;

    std::vector<std::thread> helpers_;
};

}  // namespace reprise
