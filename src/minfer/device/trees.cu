// Arc probabilities under all dependency trees: a block a sentence, in doubles.
//
// `crossing` is the matrix-tree theorem by the steps of inverse_marginals in
// minfer.kernels.trees.nonprojective, `nested` the chart of Eisner (1996), inside and outside, as
// in minfer.kernels.trees.projective, one length of spans after the other. Each word's weights are
// scaled as there. Where a sum is not safe (an inverse that is too large, what left the range, a
// score that is no number, no tree at all) `fine` is 0: such a sentence is the processor's.
//
// Scores and probabilities are (B, nodes, nodes), [head, modifier]; `words` says how many of them a
// sentence has. Room for a block is in shared memory where `per` is 0, else `per` doubles of `room`
// each. All threads of a block meet at BARRIER().

HELPER double endless() { return as_double(0x7ff0000000000000ULL); }

#define LARGE_INVERSE 1e4
#define SPREAD 2.6
#define CUT 1e4
#define TINY 1e-280

// The score of the arc from h to m; none into its own head or the root.
HELPER double score_of(ARRAY(const double) scores, long long from, int nodes, int h, int m) {
  return h == m ? -endless() : scores[from + (long long)h * nodes + m];
}

// What is taken off the scores of each word's heads: log of their sum, at most that of the largest
// times `cap` (minus infinity where there is none, NaN where one is no number); and, with a single
// root, what is taken off all arcs from it besides. Ends with a barrier.
HELPER double scaled(ARRAY(const double) scores, long long from, int nodes, int n, double cap,
                     int single, ARRAY(double) top, ARRAY(double) lead) {
  for (int m = 1 + threadIdx.x; m <= n; m += blockDim.x) {
    double own = scores[from + m], others = -endless(), sum = 0;
    bool wrong = !(own < endless());
    for (int h = 1; h <= n; ++h) {
      double x = score_of(scores, from, nodes, h, m);
      wrong = wrong || !(x < endless());
      others = x > others ? x : others;
    }
    double most = own > others ? own : others;
    for (int h = 0; h <= n && most > -endless(); ++h)
      sum += exp(score_of(scores, from, nodes, h, m) - most);
    top[m] = wrong ? endless() - endless() : most + log(sum < cap ? sum : cap);
    lead[m] = own - others < CUT ? own - others : -endless();
  }
  BARRIER();
  double root = -endless();
  for (int m = 1; m <= n && single; ++m) root = higher(lead[m], root);
  return single && root > -CUT ? root + 0.0 : 0;
}

// An arc's weight, scaled.
HELPER double weight_of(ARRAY(const double) scores, long long from, int nodes, int h, int m,
                        ARRAY(const double) top, double root) {
  return exp(score_of(scores, from, nodes, h, m) - top[m] - (h == 0 ? root : 0));
}

// The last net, and nothing where no arc is: every word has one head. Begins with a barrier.
HELPER void look(int b, int nodes, int n, ARRAY(const double) mu, ARRAY(int) fine) {
  long long from = (long long)b * nodes * nodes;
  BARRIER();
  for (int m = 1 + threadIdx.x; m <= n; m += blockDim.x) {
    double sum = 0;
    for (int h = 0; h <= n; ++h) sum += mu[from + (long long)h * nodes + m];
    if (!(size_of(sum - 1) < 1e-3)) fine[b] = 0;
  }
}

HELPER double inside_one(double x) { return x > 0 ? (x < 1 ? x : 1) : x <= 0 ? 0 : x; }

KERNEL void crossing(long long per, int nodes, int single, ARRAY(const int) words,
                     ARRAY(const double) scores, ARRAY(double) mu, ARRAY(double) log_z,
                     ARRAY(int) fine, ARRAY(double) room) {
  int b = blockIdx.x, n = words[b], width = n + 1, lane = threadIdx.x % LANES;
  int warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
  long long from = (long long)b * nodes * nodes;
  ARRAY(double) q = ROOM(room, per);  // (n, n + 1); the last column has the root's weights
  ARRAY(double) top = part(q, (long long)n * width);
  ARRAY(double) row = part(top, nodes);
  ARRAY(double) column = part(row, nodes);
  ARRAY(double) diagonal = part(column, nodes);
  ARRAY(double) pivots = part(diagonal, nodes);
  double root = scaled(scores, from, nodes, n, endless(), single, top, row);
  for (int m = warp; m < n; m += warps)
    for (int h = lane; h < width; h += LANES) {
      double w = weight_of(scores, from, nodes, h == n ? 0 : h + 1, m + 1, top, root);
      q[m * width + h] = h == n && single ? w : -w;
    }
  BARRIER();
  int s = -1;
  double best = -1;
  for (int m = 0; m < n && single; ++m)
    if (q[m * width + n] > best) best = q[m * width + n], s = m;
  double value = 0, largest = 0, most = 0, reach = 0;
  bool safe = true;
  int past = single ? n : width;
  for (int step = 0; step < n; ++step) {  // a single root's favourite, s, comes last
    int k = s < 0 || step < s ? step : step < n - 1 ? step + 1 : s, c = k == s ? n : k;
    double pivot = 0;
    if (k == s) {
      pivot = q[k * width + n];
      for (int m = 0; m < n; ++m)
        if (m != s) largest = higher(q[m * width + m], largest);
    } else {
      if (s >= 0 && s < k) pivot = -q[k * width + s];
      for (int h = k + 1; h < past; ++h) pivot -= q[k * width + h];
    }
    safe = safe && pivot > 0 && pivot < endless();
    if (threadIdx.x == 0) pivots[step] = pivot;
    double inverse = 1 / pivot;
    for (int h = threadIdx.x; h < width; h += blockDim.x) row[h] = q[k * width + h] * inverse;
    for (int m = threadIdx.x; m < n; m += blockDim.x) column[m] = m == k ? 0 : q[m * width + c];
    BARRIER();
    for (int m = warp; m < n; m += warps)
      for (int h = lane; h < width; h += LANES) {
        double x = m == k ? row[h] : q[m * width + h] - column[m] * row[h];
        if (h == c) x = m == k ? inverse : -column[m] * inverse;
        q[m * width + h] = x;
      }
    if (k == s)
      for (int m = 0; m < n; ++m) {
        if (m == s) continue;
        most = higher(row[m], most);
        reach = higher(column[m], reach);
      }
    BARRIER();
  }
  if (s < 0)
    for (int m = 0; m < n; ++m) largest = higher(q[m * width + m], largest);
  safe = safe && largest + most * reach <= LARGE_INVERSE;
  for (int m = threadIdx.x; m < n; m += blockDim.x) {
    pivots[m] = log(pivots[m]);
    diagonal[m] = q[m * width + m];
    column[m] = single ? q[s * width + (m == s ? n : m)] : diagonal[m];  // what the root sees
  }
  BARRIER();
  for (int h = warp; h < nodes; h += warps)
    for (int m = lane; m < nodes; m += LANES) {
      double x = 0;
      if (safe && h <= n && m > 0 && m <= n && h != m) {
        double w = weight_of(scores, from, nodes, h, m, top, root);
        if (h == 0) x = w * column[m - 1];
        else if (h - 1 == s) x = w * diagonal[m - 1];
        else if (m - 1 == s) x = -w * q[(h - 1) * width + n];
        else x = w * (diagonal[m - 1] - q[(h - 1) * width + m - 1]);
      }
      mu[from + (long long)h * nodes + m] = inside_one(x);
    }
  if (threadIdx.x == 0) {
    for (int m = 1; m <= n; ++m) value += top[m] + pivots[m - 1];
    log_z[b] = value + root;
    fine[b] = safe && size_of(value) < endless();
  }
  look(b, nodes, n, mu, fine);
}

// Of all pairs of nodes i < j: complete spans with their head on the left at [i, j], on the right at
// [j, i]; `half` what an arc between i and j may join, at [i, j], and its derivative at [j, i].
KERNEL void nested(long long per, int nodes, int single, ARRAY(const int) words,
                   ARRAY(const double) scores, ARRAY(double) mu, ARRAY(double) log_z,
                   ARRAY(int) fine, ARRAY(double) room) {
  int b = blockIdx.x, n = words[b], N = n + 1, lo = single ? 1 : 0;
  long long from = (long long)b * nodes * nodes;
  ARRAY(double) w = ROOM(room, per);
  ARRAY(double) full = part(w, N * N);
  ARRAY(double) half = part(full, N * N);
  ARRAY(double) moved = part(half, N * N);
  ARRAY(double) top = part(moved, N * N);
  ARRAY(double) lead = part(top, nodes);
  double root = scaled(scores, from, nodes, n, SPREAD, single, top, lead);
  for (int k = threadIdx.x; k < N * N; k += blockDim.x) {
    int h = k / N, m = k % N;
    w[k] = m == 0 || h == m ? 0 : weight_of(scores, from, nodes, h, m, top, root);
    full[k] = h == m ? 1 : 0;
    half[k] = moved[k] = 0;
  }
  BARRIER();
  for (int d = 1; d < N - lo; ++d) {
    for (int i = lo + threadIdx.x; i + d < N; i += blockDim.x) {
      double sum = 0;
      for (int k = i; k < i + d; ++k) sum += full[i * N + k] * full[(i + d) * N + k + 1];
      half[i * N + i + d] = sum;
    }
    BARRIER();
    for (int t = threadIdx.x; t < 2 * (N - lo - d); t += blockDim.x) {
      int i = lo + t / 2, j = i + d;
      double sum = 0;
      if (t % 2 == 0) {
        for (int k = i + 1; k <= j; ++k)
          sum += w[i * N + k] * half[i * N + k] * full[k * N + j];
        full[i * N + j] = sum;
      } else {
        for (int k = i; k < j; ++k)
          sum += full[k * N + i] * w[j * N + k] * half[k * N + j];
        full[j * N + i] = sum;
      }
    }
    BARRIER();
  }
  double z = full[n];
  if (single) {
    z = 0;
    for (int m = 1; m <= n; ++m) z += w[m] * full[m * N + 1] * full[m * N + n];
  }
  bool safe = z >= TINY && z < 1 / TINY;
  for (int d = N - lo - 1; d > 0; --d) {
    for (int t = threadIdx.x; t < 2 * (N - lo - d); t += blockDim.x) {  // of complete spans
      int i = lo + t / 2, j = i + d;
      double sum = 0;
      if (t % 2 == 0) {
        if (i == lo && j == n && !single) sum = 1;
        if (single && j == n) sum = w[i] * full[i * N + 1];
        for (int k = lo; k < i; ++k) sum += moved[k * N + j] * w[k * N + i] * half[k * N + i];
        for (int k = j + 1; k < N; ++k) sum += half[k * N + i] * full[k * N + j + 1];
        moved[i * N + j] = sum;
      } else {
        if (single && i == 1) sum = w[j] * full[j * N + n];
        for (int k = j + 1; k < N; ++k) sum += moved[k * N + i] * w[k * N + j] * half[j * N + k];
        for (int k = lo; k < i; ++k) sum += half[j * N + k] * full[k * N + i - 1];
        moved[j * N + i] = sum;
      }
    }
    BARRIER();
    for (int i = lo + threadIdx.x; i + d < N; i += blockDim.x) {  // of what arcs join
      int j = i + d;
      double right = 0, left = 0, joins = half[i * N + j];
      for (int k = j; k < N; ++k) right += moved[i * N + k] * full[j * N + k];
      for (int k = lo; k <= i; ++k) left += moved[j * N + k] * full[i * N + k];
      half[j * N + i] = right * w[i * N + j] + left * w[j * N + i];
      right *= joins, left *= joins;
      safe = safe && right < 1 / TINY && left < 1 / TINY && (w[i * N + j] == 0 || right >= TINY)
          && (w[j * N + i] == 0 || left >= TINY);
      mu[from + (long long)i * nodes + j] = inside_one(w[i * N + j] * right / z);
      mu[from + (long long)j * nodes + i] = inside_one(w[j * N + i] * left / z);
    }
    BARRIER();
  }
  for (int k = threadIdx.x; k < nodes * nodes; k += blockDim.x) {
    int h = k / nodes, m = k % nodes;
    if (single && h == 0 && m > 0 && m <= n)
      mu[from + k] = inside_one(w[m] * full[m * N + 1] * full[m * N + n] / z);
    else if (h > n || m > n || m == 0 || h == m)
      mu[from + k] = 0;
  }
  if (threadIdx.x == 0) {
    double value = log(z) + root;
    for (int m = 1; m <= n; ++m) value += top[m];
    log_z[b] = value;
    fine[b] = size_of(value) < endless();
  }
  BARRIER();
  if (!safe) fine[b] = 0;
  look(b, nodes, n, mu, fine);
}
