// A CUDA C source as C++, for machines without a card: one thread after the other. Compile with
// -DSOURCE="...", the text of a program. Arrays know their length: an index out of range is
// counted, and goes nowhere. Threads run in order, `backwards` in the opposite one, and what depends
// on that is a race. MEETS: threads of a block meet at barriers; each is a fibre that runs up to the
// next one, where all others must arrive, too. Compile also with -DKERNELS="X(this) X(that)".
#include <cmath>
#include <cstring>
#include <vector>
#include <tuple>
#include <type_traits>
#include <utility>

struct Three { int x, y; };
static Three blockIdx, threadIdx, blockDim, gridDim;
static long long out_of_range = 0;

template <class T> struct Checked {
  T *begin;
  long long length;
  template <class I> T &operator[](I i) const {
    static std::remove_const_t<T> nowhere[1];
    if (i >= 0 && (long long)i < length) return begin[i];
    ++out_of_range;
    nowhere[0] = 0;
    return nowhere[0];
  }
  operator Checked<const T>() const { return {begin, length}; }
};

#define HELPER static inline
#define METHOD
#define KERNEL static
#define ARRAY(T) Checked<T>
#define UNROLL
#define BOUNDED(threads, blocks)
#define SHARED(T, name, n)   \
  static T name##_there[n]; \
  Checked<T> name { name##_there, n }
#define LANES 2
#define ROOM(room, per) part(room, (per) * blockIdx.x)
#define OWN(room, per) ROOM(room, per)
template <class T> static Checked<T> part(Checked<T> from, long long n) {
  return {from.begin + n, from.length - n};
}
template <class T> static Checked<T> as(Checked<double> from, long long at, long long n) {
  long long left = (from.length - at) * (long long)sizeof(double) / (long long)sizeof(T);
  return {(T *)(from.begin + at), n < left ? n : left};
}
template <class T> static T quick(T x, T y) { return x / y; }
template <class T> static T near_exp(T x) { return std::exp(x); }
template <class T> static T near_log(T x) { return std::log(x); }

#ifdef MEETS
#include <ucontext.h>
static ucontext_t here;
struct Fibre {
  ucontext_t context;
  std::vector<char> stack;
  bool done;
};
static Fibre *now;
[[maybe_unused]] static void BARRIER() { swapcontext(&now->context, &here); }
#endif

HELPER double as_double(unsigned long long bits) {
  double x;
  std::memcpy(&x, &bits, 8);
  return x;
}
HELPER void raise_to(Checked<unsigned long long> seen, long long at, double x) {
  unsigned long long bits;
  x = x > 0 ? x <= 1e300 ? x : 1e300 : x <= 0 ? 0 : 1e300;  // -0 has the largest bits of all
  std::memcpy(&bits, &x, 8);
  if (bits > seen[at]) seen[at] = bits;
}
HELPER double seen_at(Checked<unsigned long long> seen, long long at) {
  return as_double(seen[at]);
}
HELPER bool is_last(Checked<int> tickets, long long row) {
  if (++tickets[row] < (int)(gridDim.x * blockDim.x)) return false;
  tickets[row] = 0;
  return true;
}

#include SOURCE

template <class... A, std::size_t... I>
static void call(void (*kernel)(A...), void **given, std::index_sequence<I...>) {
  kernel(*(A *)given[I]...);
}

template <class... A> static void over(void (*kernel)(A...), void **given, int backwards) {
#ifdef MEETS
  static void (*run)(A...);
  static void **what;
  run = kernel, what = given;
  std::vector<Fibre> fibres(blockDim.x);
  int blocks = gridDim.x * gridDim.y;
  for (int k = 0; k < blocks; ++k) {
    int block = backwards ? blocks - 1 - k : k;
    blockIdx = {block % gridDim.x, block / gridDim.x};
    for (Fibre &fibre : fibres) {
      fibre.stack.resize(1 << 16);
      fibre.done = false;
      getcontext(&fibre.context);
      fibre.context.uc_stack.ss_sp = fibre.stack.data();
      fibre.context.uc_stack.ss_size = fibre.stack.size();
      fibre.context.uc_link = &here;
      makecontext(&fibre.context, (void (*)())+[] {
        call(run, what, std::index_sequence_for<A...>());
        now->done = true;
      }, 0);
    }
    for (int left = blockDim.x; left > 0;) {
      int ended = 0;
      for (int k = 0; k < blockDim.x; ++k) {
        threadIdx.x = backwards ? blockDim.x - 1 - k : k;
        now = &fibres[threadIdx.x];
        swapcontext(&here, &now->context);
        ended += now->done;
      }
      if (ended != 0 && ended != blockDim.x) {
        out_of_range = -2;
        return;
      }
      left -= ended;
    }
  }
  return;
#endif
  int all = gridDim.x * gridDim.y * blockDim.x;
  for (int k = 0; k < all; ++k) {
    int thread = backwards ? all - 1 - k : k;
    threadIdx.x = thread % blockDim.x;
    blockIdx.x = thread / blockDim.x % gridDim.x;
    blockIdx.y = thread / blockDim.x / gridDim.x;
    call(kernel, given, std::index_sequence_for<A...>());
  }
}

// Returns how many indices were out of range; -1: there is no such kernel.
extern "C" long long launch(const char *name, int blocks, int rows, int block, int backwards,
                            void **given) {
  gridDim = {blocks, rows};
  blockDim = {block, 1};
  out_of_range = 0;
#define X(kernel) if (!std::strcmp(name, #kernel)) return over(kernel, given, backwards), out_of_range;
  KERNELS
  return -1;
}
