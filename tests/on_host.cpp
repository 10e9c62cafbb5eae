// A CUDA C source as C++, for machines without a card: one thread after the other. Compile with
// -DSOURCE="...", the text of a program. Arrays know their length: an index out of range is
// counted, and goes nowhere. Kernels here have no barriers, so threads may run in any order:
// `backwards` runs them in the opposite one, and what depends on it is a race.
#include <cmath>
#include <cstring>
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

HELPER double as_double(unsigned long long bits) {
  double x;
  std::memcpy(&x, &bits, 8);
  return x;
}
HELPER void raise_to(Checked<unsigned long long> seen, long long at, double x) {
  unsigned long long bits;
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
  if (!std::strcmp(name, "sweep")) over(sweep, given, backwards);
  else if (!std::strcmp(name, "mix")) over(mix, given, backwards);
  else if (!std::strcmp(name, "update")) over(update, given, backwards);
  else if (!std::strcmp(name, "finish")) over(finish, given, backwards);
  else if (!std::strcmp(name, "believe")) over(believe, given, backwards);
  else if (!std::strcmp(name, "bethe")) over(bethe, given, backwards);
  else return -1;
  return out_of_range;
}
