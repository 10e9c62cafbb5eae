// Beliefs of binary pairs, and derivatives through a fixed point: the adjoint of
// minfer.kernels.messages.adjoint over many rows of one structure, in doubles. Layout as in odds.cu.
//
// S is the derivative by a variable's log-odds, lam[e] that by the log of the message its slot e
// receives, f' the slope of the message that answers. A slot hears f'_e lam_rev(e), so that
//
//     S_v = g_v + sum_e heard_e,    heard_rev(e) = f'_rev(e) (S_v - heard_e),
//
// which is message passing in place, colour after colour. away[e] is f'_rev(e). Pair f has its slots
// at ends[2 f], ends[2 f + 1], of the places homes[2 f], homes[2 f + 1]; joints (rows, pairs, 4) are
// 00, 01, 10, 11.

enum { CONVERGED, RUNNING, SLOW, CUT };  // CUT: no sweeps are left
#define WINDOW 8
enum { DONE = WINDOW, CODE, GOAL, KEPT, LIMIT, RECORD };  // of a row of `trace`, after its changes

// Log-odds of all places.
KERNEL void lean(int places, long long slots, ARRAY(const int) width, ARRAY(const long long) start,
                 ARRAY(const REAL) prior, ARRAY(const REAL) even, ARRAY(const REAL) odd,
                 ARRAY(const double) controls, ARRAY(double) odds) {
  long long row = blockIdx.y;
  ARRAY(const REAL) in = controls[row * CONTROL + SIDE] == 0 ? even : odd;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < places; i += blockDim.x * gridDim.x) {
    double x = prior[row * places + i];
    for (int d = 0; d < width[i]; ++d)
      x += in[row * slots + start[i / SLICE] + i % SLICE + SLICE * d];
    odds[row * places + i] = x;
  }
}

// Beliefs of all pairs, from cavities a, b and a + b + w in logs: nothing leaves the range.
KERNEL void beliefs(int pairs, int places, long long slots, long long row_w, ARRAY(const int) ends,
                    ARRAY(const int) homes, ARRAY(const REAL) w, ARRAY(const REAL) even,
                    ARRAY(const REAL) odd, ARRAY(const double) controls, ARRAY(const double) odds,
                    ARRAY(double) joints) {
  long long row = blockIdx.y;
  ARRAY(const REAL) in = controls[row * CONTROL + SIDE] == 0 ? even : odd;
  for (int f = blockIdx.x * blockDim.x + threadIdx.x; f < pairs; f += blockDim.x * gridDim.x) {
    long long i = ends[2 * f], j = ends[2 * f + 1], out = 4 * (row * pairs + f);
    double a = odds[row * places + homes[2 * f]] - in[row * slots + i];
    double b = odds[row * places + homes[2 * f + 1]] - in[row * slots + j];
    bool one = a > 1e29, two = b > 1e29;  // known to be 1: such a number would swallow others
    if (one) a = 0;
    if (two) b = 0;
    double z[4] = {0, b, a, a + b + w[row * row_w + i]}, top = z[3];
    bool out_of_it[4] = {one || two, one, two, false};
    for (int k = 0; k < 3; ++k)
      if (!out_of_it[k]) top = higher(top, z[k]);
    for (int k = 0; k < 4; ++k) z[k] = out_of_it[k] ? 0 : exp(z[k] - top);
    double by = 1 / (z[0] + z[1] + z[2] + z[3]);
    for (int k = 0; k < 4; ++k) joints[out + k] = z[k] * by;
  }
}

// f' and sigma of both ends of a pair; see joint_slopes there.
HELPER void slopes(ARRAY(const double) joints, long long at, double *slope, double *sigma) {
  double none = joints[at], second = joints[at + 1], first = joints[at + 2], both = joints[at + 3];
  double odd = both * none - first * second;
  for (int k = 0; k < 2; ++k) {
    double on = both + (k == 0 ? second : first), off = none + (k == 0 ? first : second);
    sigma[k] = on > 0 ? both / on : 0;
    slope[k] = on > 0 && off > 0 ? odd / on / off : 0;
  }
}

KERNEL void opened(int pairs, long long slots, ARRAY(const int) ends, ARRAY(const double) joints,
                   ARRAY(double) away) {
  long long row = blockIdx.y;
  for (int f = blockIdx.x * blockDim.x + threadIdx.x; f < pairs; f += blockDim.x * gridDim.x) {
    double slope[2], sigma[2];
    slopes(joints, 4 * (row * pairs + f), slope, sigma);
    away[row * slots + ends[2 * f]] = slope[1];
    away[row * slots + ends[2 * f + 1]] = slope[0];
  }
}

// What the cotangents say to others at first.
KERNEL void first(int places, long long slots, ARRAY(const int) width, ARRAY(const long long) start,
                  ARRAY(const int) rev, ARRAY(const double) g, ARRAY(const double) away,
                  ARRAY(double) heard, ARRAY(double) S) {
  long long row = blockIdx.y;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < places; i += blockDim.x * gridDim.x) {
    double s = S[row * places + i] = g[row * places + i];
    for (int d = 0; d < width[i]; ++d) {
      long long e = start[i / SLICE] + i % SLICE + SLICE * d;
      heard[row * slots + rev[e]] = away[row * slots + e] * s;
    }
  }
}

KERNEL void pull(int begin, int end, int places, long long slots, ARRAY(const int) width,
                 ARRAY(const long long) start, ARRAY(const int) rev, ARRAY(const double) g,
                 ARRAY(const double) away, ARRAY(double) heard, ARRAY(double) S,
                 ARRAY(const double) trace, ARRAY(unsigned long long) seen) {
  long long row = blockIdx.y;
  if (trace[row * RECORD + CODE] != RUNNING) return;
  double kept = trace[row * RECORD + KEPT], moved = 0, most = 0;
  bool lost = false;
  for (int i = begin + blockIdx.x * blockDim.x + threadIdx.x; i < end;
       i += blockDim.x * gridDim.x) {
    if (width[i] < 0) continue;  // nobody
    long long from = start[i / SLICE] + i % SLICE;
    double s = g[row * places + i];
    for (int d = 0; d < width[i]; ++d) s += heard[row * slots + from + SLICE * d];
    lost = lost || !(size_of(s) < 1e300);
    moved = higher(moved, size_of(s - S[row * places + i]));
    most = higher(most, size_of(s));
    S[row * places + i] = s;
    for (int d = 0; d < width[i]; ++d) {
      long long e = row * slots + from + SLICE * d, to = row * slots + rev[from + SLICE * d];
      double x = away[e] * (s - heard[e]);
      if (kept > 0) {
        moved = higher(moved, size_of(x - heard[to]));
        x += kept * (heard[to] - x);
      }
      heard[to] = x;
    }
  }
  raise_to(seen, row * SEEN + CHANGE, lost ? 1e300 : moved);
  raise_to(seen, row * SEEN + MOVED, most);
}

// The end of a sweep: as `judged` there. A thread a row.
KERNEL void verdict(int rows, ARRAY(double) trace, ARRAY(unsigned long long) seen) {
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows;
       row += blockDim.x * gridDim.x) {
    long long at = (long long)row * RECORD;
    if (trace[at + CODE] != RUNNING) continue;
    double moved = seen_at(seen, row * SEEN + CHANGE);
    double goal = trace[at + GOAL] * seen_at(seen, row * SEEN + MOVED);
    int done = (int)trace[at + DONE];
    double last = trace[at + (done + WINDOW - 1) % WINDOW];
    double former = trace[at + (done + WINDOW - 2) % WINDOW], before = trace[at + done % WINDOW];
    trace[at + done % WINDOW] = moved;
    trace[at + DONE] = done + 1;
    double ratio = higher(moved / last, last / former);
    if (moved <= goal && last <= goal) trace[at + CODE] = CONVERGED;
    else if (moved < last && last < former && former < 1e300 && moved * ratio <= goal * (1 - ratio))
      trace[at + CODE] = CONVERGED;
    else if (!(moved < 1e300) || (done >= 2 * WINDOW && moved > 0.5 * before))
      trace[at + CODE] = SLOW;
    else if (done + 1 >= trace[at + LIMIT]) trace[at + CODE] = CUT;
    for (int k = 0; k < SEEN; ++k) seen[row * SEEN + k] = 0;
  }
}

// Derivatives by the logs of the pairs' tables; see pair_statistics there.
KERNEL void tables(int pairs, int places, long long slots, ARRAY(const int) ends,
                   ARRAY(const int) homes, ARRAY(const double) joints, ARRAY(const double) heard,
                   ARRAY(const double) S, ARRAY(double) out) {
  long long row = blockIdx.y;
  for (int f = blockIdx.x * blockDim.x + threadIdx.x; f < pairs; f += blockDim.x * gridDim.x) {
    double slope[2], sigma[2];
    long long at = 4 * (row * pairs + f);
    slopes(joints, at, slope, sigma);
    double a = S[row * places + homes[2 * f]], b = S[row * places + homes[2 * f + 1]];
    double w = sigma[0] * (b - heard[row * slots + ends[2 * f + 1]])
             + sigma[1] * (a - heard[row * slots + ends[2 * f]]);
    out[at] = w - a - b;
    out[at + 1] = b - w;
    out[at + 2] = a - w;
    out[at + 3] = w;
  }
}
