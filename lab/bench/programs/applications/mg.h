// MG, class W: four V-cycles of a multigrid solver for a Poisson equation on a periodic grid of 128^3 points. Each rank
// has some planes of each grid, and neighbours exchange the planes at their borders. Grids with fewer planes than there
// are ranks are on some of the ranks.
enum { MG_LEVELS = 7, MG_CYCLES = 4, MG_CHARGES = 10 };

// A grid of n^3 points and this rank's planes of it. A row, a plane and a rank's planes have one more element at each
// end, which repeats the neighbour's.
static struct grid { int n, low, high, width; size_t plane; double *u, *r; } grids[MG_LEVELS + 1];

static const double LAPLACE[4] = {-8.0 / 3, 0, 1.0 / 6, 1.0 / 12}, SMOOTHER[4] = {-3.0 / 8, 1.0 / 32, -1.0 / 64, 0},
                    PROJECTION[4] = {0.5, 0.25, 0.125, 0.0625};

static int mg_owner(int n, int plane) {
    plane = (plane + n) % n;
    return n >= size ? plane / (n / size) : (plane + 1) * (size / n) - 1;
}

static double *mg_plane(const struct grid *grid, double *field, int plane) {
    return field + (plane - grid->low + 1) * grid->plane;
}

static double *mg_row(const struct grid *grid, double *field, int plane, int row) {
    return mg_plane(grid, field, plane) + row * grid->width;
}

static size_t mg_elements(const struct grid *grid) { return (grid->high - grid->low + 2) * grid->plane; }

static void mg_open(struct grid *grid, int n) {
    *grid = (struct grid){.n = n, .width = n + 2, .plane = (size_t)(n + 2) * (n + 2)};
    while (grid->low < n && mg_owner(n, grid->low) != rank) grid->low++;
    for (grid->high = grid->low; grid->high < n && mg_owner(n, grid->high) == rank;) grid->high++;
    if (grid->low == n) return;
    grid->u = memory(mg_elements(grid) * sizeof *grid->u);
    grid->r = memory(mg_elements(grid) * sizeof *grid->r);
}

// Fills the elements that repeat others.
static void mg_borders(const struct grid *grid, double *field) {
    int n = grid->n, width = grid->width, left = mg_owner(n, grid->low - 1), right = mg_owner(n, grid->high);
    if (grid->low == n) return;
    for (int at = grid->low; at < grid->high; at++) {
        double *plane = mg_plane(grid, field, at);
        for (double *row = plane + width; row <= plane + n * width; row += width) row[0] = row[n], row[n + 1] = row[1];
        memcpy(plane, plane + n * width, width * sizeof *plane);
        memcpy(plane + (n + 1) * width, plane + width, width * sizeof *plane);
    }
    double *before = mg_plane(grid, field, grid->low - 1), *after = mg_plane(grid, field, grid->high);
    double *first = before + grid->plane, *last = after - grid->plane;
    size_t bytes = grid->plane * sizeof *field;
    if (left == rank) {
        memcpy(before, last, bytes);
        memcpy(after, first, bytes);
        return;
    }
    send_to(left, first, bytes);
    send_to(right, last, bytes);
    // In this order, since both may be the same rank.
    receive_from(right, after, bytes);
    receive_from(left, before, bytes);
}

// For each element of a row, the sums of its 4 nearest and of its 4 second nearest neighbours in other rows.
static void mg_sums(const double *row, const struct grid *grid, double *near, double *far) {
    ptrdiff_t width = grid->width, plane = grid->plane;
    for (int i = 0; i < grid->width; i++) {
        const double *at = row + i;
        near[i] = at[-width] + at[width] + at[-plane] + at[plane];
        far[i] = at[-plane - width] + at[-plane + width] + at[plane - width] + at[plane + width];
    }
}

// The element, its 6 neighbours at faces, 12 at edges, 8 at corners, with their weights.
static inline double mg_weighted(const double weights[4], const double *row, const double *near, const double *far,
                                 int i) {
    return weights[0] * row[i] + weights[1] * (row[i - 1] + row[i + 1] + near[i]) +
           weights[2] * (far[i] + near[i - 1] + near[i + 1]) + weights[3] * (far[i - 1] + far[i + 1]);
}

// to = from + sign (weights * of)
static void mg_apply(const struct grid *grid, double *to, double *from, double sign, const double weights[4],
                     double *of) {
    double near[grid->width], far[grid->width];
    for (int at = grid->low; at < grid->high; at++) {
        for (int j = 1; j <= grid->n; j++) {
            const double *row = mg_row(grid, of, at, j), *base = mg_row(grid, from, at, j);
            double *result = mg_row(grid, to, at, j);
            mg_sums(row, grid, near, far);
            for (int i = 1; i <= grid->n; i++) result[i] = base[i] + sign * mg_weighted(weights, row, near, far, i);
        }
    }
    mg_borders(grid, to);
}

static void mg_project(const struct grid *fine, const struct grid *coarse) {
    double near[fine->width], far[fine->width];
    for (int at = coarse->low; at < coarse->high; at++) {
        for (int j = 1; j <= coarse->n; j++) {
            const double *row = mg_row(fine, fine->r, 2 * at + 1, 2 * j);
            double *result = mg_row(coarse, coarse->r, at, j);
            mg_sums(row, fine, near, far);
            for (int i = 1; i <= coarse->n; i++) result[i] = mg_weighted(PROJECTION, row, near, far, 2 * i);
        }
    }
    mg_borders(coarse, coarse->r);
}

// Adds to a plane what lies between two planes of the coarser grid.
static void mg_add_between(const struct grid *fine, double *to, const struct grid *coarse, const double *a,
                           const double *b) {
    double sums[coarse->plane];
    for (size_t i = 0; i < coarse->plane; i++) sums[i] = (a[i] + b[i]) / 8;
    for (int j = 1; j <= fine->n; j++) {
        const double *up = sums + j / 2 * coarse->width, *down = sums + (j + 1) / 2 * coarse->width;
        double *row = to + j * fine->width;
        for (int i = 1; i <= fine->n; i++) row[i] += up[i / 2] + up[(i + 1) / 2] + down[i / 2] + down[(i + 1) / 2];
    }
}

static void mg_interpolate(const struct grid *coarse, const struct grid *fine) {
    size_t bytes = coarse->plane * sizeof(double);
    double *left = memory(bytes), *right = memory(bytes);
    bool is_apart = fine->n <= size && fine->low < fine->n;
    // One plane a rank: every other rank has one of the coarse grid as well, which both its neighbours need.
    if (is_apart && fine->low % 2 == 1) {
        double *own = mg_plane(coarse, coarse->u, coarse->low);
        send_to(mg_owner(fine->n, fine->low - 1), own, bytes);
        send_to(mg_owner(fine->n, fine->high), own, bytes);
    } else if (is_apart) {
        receive_from(mg_owner(fine->n, fine->low - 1), left, bytes);
        receive_from(mg_owner(fine->n, fine->high), right, bytes);
    }
    for (int at = fine->low; at < fine->high; at++) {
        double *a = left, *b = right;
        if (!is_apart || at % 2 == 1) {
            a = mg_plane(coarse, coarse->u, (at + 1) / 2 - 1);
            b = mg_plane(coarse, coarse->u, (at + 2) / 2 - 1);
        }
        mg_add_between(fine, mg_plane(fine, fine->u, at), coarse, a, b);
    }
    mg_borders(fine, fine->u);
    free(left);
    free(right);
}

static void mg_cycle(double *v) {
    for (int k = MG_LEVELS; k > 1; k--) mg_project(&grids[k], &grids[k - 1]);
    for (int k = 1; k <= MG_LEVELS; k++) {
        struct grid *grid = &grids[k];
        if (k < MG_LEVELS && grid->u) memset(grid->u, 0, mg_elements(grid) * sizeof *grid->u);
        if (k > 1) {
            mg_interpolate(&grids[k - 1], grid);
            mg_apply(grid, grid->r, k < MG_LEVELS ? grid->r : v, -1, LAPLACE, grid->u);
        }
        mg_apply(grid, grid->u, grid->u, 1, SMOOTHER, grid->r);
    }
}

static int mg_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// A random number for each point; the ten largest become 1, the ten smallest -1, all others 0.
static void mg_charges(const struct grid *grid, double *v) {
    int n = grid->n, own = (grid->high - grid->low) * n * n, kept = 2 * MG_CHARGES * size;
    double *drawn = memory(own * sizeof *drawn), *extreme = memory(kept * sizeof *extreme);
    double *ours = extreme + 2 * MG_CHARGES * rank;
    uint64_t random = skip(314159265, (uint64_t)grid->low * n * n);
    for (int i = 0; i < MG_CHARGES; i++) ours[i] = 1;
    for (int i = 0; i < own; i++) {
        double value = drawn[i] = draw(&random);
        // Replaces the largest of the smallest, or the smallest of the largest.
        if (value < ours[MG_CHARGES - 1]) {
            ours[MG_CHARGES - 1] = value;
            qsort(ours, MG_CHARGES, sizeof *ours, mg_ascending);
        } else if (value > ours[MG_CHARGES]) {
            ours[MG_CHARGES] = value;
            qsort(ours + MG_CHARGES, MG_CHARGES, sizeof *ours, mg_ascending);
        }
    }
    gather(extreme, kept);
    qsort(extreme, kept, sizeof *extreme, mg_ascending);
    double smallest = extreme[MG_CHARGES - 1], largest = extreme[kept - MG_CHARGES];
    for (int i = 0; i < own; i++) {
        double *row = mg_row(grid, v, grid->low + i / (n * n), i / n % n + 1);
        row[i % n + 1] = drawn[i] >= largest ? 1 : drawn[i] <= smallest ? -1 : 0;
    }
    free(drawn);
    free(extreme);
}

static void mg(void) {
    if (size > 1 << MG_LEVELS) fail("more ranks than planes", size);
    for (int k = 1; k <= MG_LEVELS; k++) mg_open(&grids[k], 1 << k);
    struct grid *finest = &grids[MG_LEVELS];
    double *v = memory(mg_elements(finest) * sizeof *v), sum = 0;
    mg_charges(finest, v);
    mg_apply(finest, finest->r, v, -1, LAPLACE, finest->u);
    for (int cycle = 0; cycle < MG_CYCLES; cycle++) {
        mg_cycle(v);
        mg_apply(finest, finest->r, v, -1, LAPLACE, finest->u);
    }
    for (int at = finest->low; at < finest->high; at++)
        for (int j = 1; j <= finest->n; j++)
            for (int i = 1; i <= finest->n; i++) sum += pow(mg_row(finest, finest->r, at, j)[i], 2);
    add_up(&sum, 1);
    verify("the residual of MG", sqrt(sum / pow(finest->n, 3)), 0.6467329375339e-5, 1e-8);
}
