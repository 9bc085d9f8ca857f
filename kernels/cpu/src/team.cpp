// See team.h. Every word that a late helper may still read carries the epoch of its program, so that it notices: the
// caller builds the next program while a helper of the last one may be anywhere between two items.
#include "team.h"

#include <chrono>
#include <climits>
#include <new>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reprise {
namespace {

constexpr int64_t kSpinBetweenProgramsNs = 30'000;  // the daemon wants the core between two steps
constexpr int64_t kSpinWithinPhaseNs = 50'000;      // an item takes a few microseconds
constexpr int64_t kStallNs = 250'000;               // nobody waits so long for an item whose thread has a core
constexpr int kBadRunsInARow = 3;
constexpr int64_t kFirstAloneNs = 25'000'000;
constexpr int64_t kLongestAloneNs = 800'000'000;

int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Sleep while `word` holds `value`, at most `limit_ns`; may return early.
void sleep_while(std::atomic<uint32_t>& word, uint32_t value, int64_t limit_ns) {
#if defined(__linux__)
    timespec limit{limit_ns / 1'000'000'000, limit_ns % 1'000'000'000};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, &limit, nullptr, 0);
#else
    if (word.load() == value) std::this_thread::sleep_for(std::chrono::nanoseconds(limit_ns < 100'000 ? limit_ns : 100'000));
#endif
}

void wake_all(std::atomic<uint32_t>& word) {
#if defined(__linux__)
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
#else
    (void)word;
#endif
}

}  // namespace

// num_done counts up to num_items; the epoch beside it tells whose count it is.
struct alignas(64) Team::Phase {
    Work work;
    int layer;
    std::atomic<uint32_t> num_items;
    alignas(64) std::atomic<uint32_t> num_done;
    std::atomic<uint32_t> epoch;
};

// One thread's items of one phase that nobody has taken yet, in one word: epoch (24 bits), next (20), end (20).
struct alignas(64) Team::Stretch {
    std::atomic<uint64_t> word;

    static uint64_t pack(uint32_t epoch, uint32_t next, uint32_t end) {
        return static_cast<uint64_t>(epoch & 0xffffffu) << 40 | static_cast<uint64_t>(next) << 20 | end;
    }

    // Its first item, or its last one for a thread that comes to take; -1: none left, or another program's.
    int take(uint32_t epoch, bool from_end) {
        uint64_t word_now = word.load(std::memory_order_acquire);
        for (;;) {
            const uint32_t next = static_cast<uint32_t>(word_now >> 20) & 0xfffffu;
            const uint32_t end = static_cast<uint32_t>(word_now) & 0xfffffu;
            if (static_cast<uint32_t>(word_now >> 40) != (epoch & 0xffffffu) || next >= end) return -1;
            const uint64_t less = from_end ? pack(epoch, next, end - 1) : pack(epoch, next + 1, end);
            if (word.compare_exchange_weak(word_now, less, std::memory_order_acq_rel, std::memory_order_acquire))
                return static_cast<int>(from_end ? end - 1 : next);
        }
    }
};

Team::Team(int num_threads, int max_phases) : num_threads_(num_threads < 1 ? 1 : num_threads), max_phases_(max_phases) {
    phases_ = new Phase[static_cast<size_t>(max_phases)]();
    stretches_ = new Stretch[static_cast<size_t>(max_phases) * static_cast<size_t>(num_threads_)]();
    phase_ns.resize(static_cast<size_t>(max_phases));
    for (int thread = 1; thread < num_threads_; ++thread) helpers_.emplace_back([this, thread] { help(thread); });
}

Team::~Team() {
    is_closing_.store(true);
    published_.fetch_add(1);
    wake_all(published_);
    for (std::thread& helper : helpers_) helper.join();
    delete[] phases_;
    delete[] stretches_;
}

void Team::begin(void* context) {
    context_ = context;
    num_taking_part_ = num_threads_ > 1 && should_run_alone() ? 1 : num_threads_;
    ++epoch_;
    num_phases_.store(0, std::memory_order_relaxed);
}

void Team::add(Work work, int layer, int num_items) {
    if (num_items == 0) return;
    const int index = num_phases_.load(std::memory_order_relaxed);
    Phase& phase = phases_[index];
    phase.work = work;
    phase.layer = layer;
    phase.num_items.store(static_cast<uint32_t>(num_items), std::memory_order_relaxed);
    phase.num_done.store(0, std::memory_order_relaxed);
    phase.epoch.store(epoch_, std::memory_order_release);
    for (int thread = 0; thread < num_threads_; ++thread) {
        uint32_t next = 0, end = 0;
        if (thread < num_taking_part_) {
            next = static_cast<uint32_t>(static_cast<int64_t>(num_items) * thread / num_taking_part_);
            end = static_cast<uint32_t>(static_cast<int64_t>(num_items) * (thread + 1) / num_taking_part_);
        }
        stretches_[index * num_threads_ + thread].word.store(Stretch::pack(epoch_, next, end), std::memory_order_release);
    }
    num_phases_.store(index + 1, std::memory_order_release);
}

void Team::run() {
    const bool alone = num_taking_part_ == 1;
    const int64_t started_ns = num_threads_ > 1 ? now_ns() : 0;
    stalled_ns_ = 0;
    if (!alone) {
        published_.store(epoch_, std::memory_order_seq_cst);
        if (num_asleep_.load(std::memory_order_seq_cst) > 0) wake_all(published_);
    }
    work_through(0, epoch_);
    if (num_threads_ > 1) judge_run(now_ns() - started_ns, alone);
}

void Team::help(int thread) {
    uint32_t epoch = 0;
    for (;;) {
        epoch = wait_for_program(epoch);
        if (is_closing_.load(std::memory_order_acquire)) return;
        work_through(thread, epoch);
    }
}

uint32_t Team::wait_for_program(uint32_t last_epoch) {
    uint32_t epoch;
    int64_t started_ns = 0;
    for (int spins = 0; (epoch = published_.load(std::memory_order_acquire)) == last_epoch; ++spins) {
        pause();
        if (spins % 32 != 0) continue;
        const int64_t now = now_ns();
        if (started_ns == 0) started_ns = now;
        if (now - started_ns < kSpinBetweenProgramsNs) continue;
        num_asleep_.fetch_add(1, std::memory_order_seq_cst);
        sleep_while(published_, last_epoch, 10'000'000'000);
        num_asleep_.fetch_sub(1, std::memory_order_seq_cst);
    }
    return epoch;
}

// Returns false when the program is over for this thread because another has begun.
bool Team::work_through(int thread, uint32_t epoch) {
    int64_t started_ns = thread == 0 && measure ? now_ns() : 0;
    const int num_phases = num_phases_.load(std::memory_order_acquire);
    for (int index = 0; index < num_phases; ++index) {
        Phase& phase = phases_[index];
        uint32_t num_done = 0;
        for (int item; (item = take(index, thread, epoch)) >= 0; ++num_done) phase.work(context_, phase.layer, item, thread);
        if (num_done > 0) {
            phase.num_done.fetch_add(num_done, std::memory_order_seq_cst);
            if (num_waiting_.load(std::memory_order_seq_cst) > 0) wake_all(phase.num_done);
        }
        if (!wait_for_phase(phase, thread, epoch)) return false;
        if (thread == 0 && measure) {
            const int64_t now = now_ns();
            phase_ns[static_cast<size_t>(index)] = now - started_ns;
            started_ns = now;
        }
    }
    return true;
}

int Team::take(int phase, int thread, uint32_t epoch) {
    Stretch* stretches = stretches_ + phase * num_threads_;
    int item = stretches[thread].take(epoch, false);
    for (int other = 1; item < 0 && other < num_threads_; ++other)
        item = stretches[(thread + other) % num_threads_].take(epoch, true);
    return item;
}

bool Team::wait_for_phase(Phase& phase, int thread, uint32_t epoch) {
    int64_t started_ns = 0, waited_ns = 0;
    for (int spins = 1;; ++spins) {
        const uint32_t num_done = phase.num_done.load(std::memory_order_acquire);
        if (phase.epoch.load(std::memory_order_acquire) != epoch) return false;
        if (num_done == phase.num_items.load(std::memory_order_relaxed)) break;
        pause();
        if (spins % 64 != 0) continue;
        const int64_t now = now_ns();
        if (started_ns == 0) started_ns = now;
        waited_ns = now - started_ns;
        if (waited_ns < kSpinWithinPhaseNs) continue;
        num_waiting_.fetch_add(1, std::memory_order_seq_cst);
        sleep_while(phase.num_done, num_done, 1'000'000);
        num_waiting_.fetch_sub(1, std::memory_order_seq_cst);
    }
    if (waited_ns > kStallNs) {
        num_stalls_.fetch_add(1, std::memory_order_relaxed);
        if (thread == 0) stalled_ns_ += waited_ns;
    }
    return true;
}

bool Team::should_run_alone() { return alone_for_ns_ > 0 && now_ns() < alone_until_ns_; }

// Alone the caller has about half the speed, so company is worth its stalls until they eat up that much. After some such
// runs in a row: alone for a while, twice as long where the next try is as bad, and as before once a try is good.
void Team::judge_run(int64_t duration_ns, bool alone) {
    if (alone) {
        ++num_solo_runs_;
        return;
    }
    if (2 * stalled_ns_ < duration_ns) {
        num_bad_runs_ = 0;
        alone_for_ns_ = 0;
        return;
    }
    if (++num_bad_runs_ < kBadRunsInARow && alone_for_ns_ == 0) return;
    alone_for_ns_ = alone_for_ns_ == 0 ? kFirstAloneNs : alone_for_ns_ * 2 > kLongestAloneNs ? kLongestAloneNs : alone_for_ns_ * 2;
    alone_until_ns_ = now_ns() + alone_for_ns_;
}

}  // namespace reprise
