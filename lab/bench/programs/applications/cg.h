// CG, class S: the smallest eigenvalue of a sparse matrix by inverse iteration; each of the 15 steps solves a system by
// 25 iterations of conjugate gradients. Each rank has some rows; the vectors are on all ranks, so that each product
// with the matrix ends with a gathering of its result.
enum { CG_N = 1400, CG_NONZERO = 7, CG_OUTER = 15, CG_INNER = 25, CG_RANGE = 2048 };

static struct { int first, last, *starts, *columns; double *values; } rows;

// One of the random vectors of which the matrix is made; returns how many elements are not 0.
static int cg_vector(uint64_t *random, int own, int *at, double *values) {
    int count = 0, seen;
    while (count < CG_NONZERO) {
        double value = draw(random);
        int place = CG_RANGE * draw(random);
        for (seen = 0; seen < count && at[seen] != place;) seen++;
        if (place < CG_N && seen == count) at[count] = place, values[count++] = value;
    }
    for (seen = 0; seen < count && at[seen] != own;) seen++;
    at[seen] = own, values[seen] = 0.5;
    return seen == count ? count + 1 : count;
}

// This rank's rows of sum(size_i v_i v_i^T) + (0.1 - shift) 1.
static void cg_make(double shift) {
    const double CONDITION = 0.1;
    rows.first = first_of(rank, CG_N), rows.last = first_of(rank + 1, CG_N);
    int own = rows.last - rows.first, at[CG_NONZERO + 1], count = 0;
    double *dense = memory((size_t)own * CG_N * sizeof *dense), values[CG_NONZERO + 1], weight = 1;
    uint64_t random = 314159265;
    draw(&random);
    for (int i = 0; i < CG_N; i++, weight *= pow(CONDITION, 1.0 / CG_N)) {
        int elements = cg_vector(&random, i, at, values);
        for (int j = 0; j < elements; j++) {
            if (at[j] < rows.first || at[j] >= rows.last) continue;
            double *row = dense + (size_t)(at[j] - rows.first) * CG_N;
            for (int k = 0; k < elements; k++) row[at[k]] += weight * values[j] * values[k];
            if (at[j] == i) row[i] += CONDITION - shift;
        }
    }
    for (int i = 0; i < own * CG_N; i++) count += dense[i] != 0;
    rows.starts = memory((own + 1) * sizeof *rows.starts);
    rows.columns = memory(count * sizeof *rows.columns);
    rows.values = memory(count * sizeof *rows.values);
    for (int i = 0, to = 0; i < own * CG_N; i++) {
        if (dense[i] != 0) rows.columns[to] = i % CG_N, rows.values[to++] = dense[i];
        rows.starts[i / CG_N + 1] = to;
    }
    free(dense);
}

static void cg_multiply(const double *by, double *result) {
    for (int i = rows.first; i < rows.last; i++) {
        double sum = 0;
        int row = i - rows.first;
        for (int k = rows.starts[row]; k < rows.starts[row + 1]; k++) sum += rows.values[k] * by[rows.columns[k]];
        result[i] = sum;
    }
    gather(result, CG_N);
}

static double cg_dot(const double *a, const double *b) {
    double sum = 0;
    for (int i = 0; i < CG_N; i++) sum += a[i] * b[i];
    return sum;
}

// z: about the solution of A z = x.
static void cg_solve(const double *x, double *z) {
    double r[CG_N], p[CG_N], q[CG_N];
    memcpy(r, x, sizeof r);
    memcpy(p, x, sizeof p);
    memset(z, 0, sizeof r);
    double rho = cg_dot(r, r);
    for (int step = 0; step < CG_INNER; step++) {
        cg_multiply(p, q);
        double alpha = rho / cg_dot(p, q), before = rho;
        for (int i = 0; i < CG_N; i++) z[i] += alpha * p[i], r[i] -= alpha * q[i];
        rho = cg_dot(r, r);
        for (int i = 0; i < CG_N; i++) p[i] = r[i] + rho / before * p[i];
    }
}

static void cg(void) {
    const double SHIFT = 10;
    double x[CG_N], z[CG_N], zeta = 0;
    cg_make(SHIFT);
    for (int i = 0; i < CG_N; i++) x[i] = 1;
    for (int step = 0; step < CG_OUTER; step++) {
        cg_solve(x, z);
        zeta = SHIFT + 1 / cg_dot(x, z);
        double norm = sqrt(cg_dot(z, z));
        for (int i = 0; i < CG_N; i++) x[i] = z[i] / norm;
    }
    verify("zeta of CG", zeta, 8.5971775078648, 1e-10);
}
