#include "loss_plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { kWidth = 800, kHeight = 450, kLeft = 70, kRight = 780, kTop = 50, kBottom = 390 };

typedef struct {
  double steps, low, high;
} scale_t;

static double x_of(const scale_t* s, double step) {
  return kLeft + (kRight - kLeft) * step / s->steps;
}

static double y_of(const scale_t* s, double loss) {
  return kBottom - (kBottom - kTop) * (loss - s->low) / (s->high - s->low);
}

/* A round distance between about n ticks over a range. */
static double tick_distance(double range, int n) {
  const double raw = range / n, power = pow(10, floor(log10(raw)));
  const double digit = raw / power;
  return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

/* The range of the losses that have a place: a run that diverges has some of infinity and NaN. */
static scale_t scale_of(const float* losses, int steps) {
  scale_t s = {steps > 1 ? steps : 1, HUGE_VAL, -HUGE_VAL};
  for (int i = 0; i < steps; ++i) {
    if (!isfinite(losses[i])) continue;
    s.low = losses[i] < s.low ? losses[i] : s.low;
    s.high = losses[i] > s.high ? losses[i] : s.high;
  }
  if (s.low > s.high) s.low = s.high = 0; /* none has */
  const double tick = tick_distance(s.high - s.low > 1e-6 ? s.high - s.low : 1, 6);
  s.low = floor(s.low / tick) * tick;
  s.high = ceil(s.high / tick) * tick;
  if (s.high <= s.low) s.high = s.low + tick;
  return s;
}

static void write_axes(FILE* f, const scale_t* s) {
  const double dx = tick_distance(s->steps, 8), dy = tick_distance(s->high - s->low, 6);
  for (double v = s->low; v <= s->high + 1e-9; v += dy) {
    fprintf(f, "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#dddddd'/>\n", kLeft, kRight,
            y_of(s, v), y_of(s, v));
    fprintf(f, "<text x='%d' y='%.1f' text-anchor='end'>%.3g</text>\n", kLeft - 8, y_of(s, v) + 4,
            v);
  }
  for (double v = 0; v <= s->steps + 1e-9; v += dx) {
    fprintf(f, "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' stroke='black'/>\n", x_of(s, v),
            x_of(s, v), kBottom, kBottom + 5);
    fprintf(f, "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n", x_of(s, v), kBottom + 20,
            v);
  }
  fprintf(f, "<path d='M%d %d V%d H%d' fill='none' stroke='black'/>\n", kLeft, kTop, kBottom,
          kRight);
  fprintf(f, "<text x='%d' y='%d' text-anchor='middle'>step</text>\n", (kLeft + kRight) / 2,
          kBottom + 45);
  fprintf(f,
          "<text transform='translate(20 %d) rotate(-90)' text-anchor='middle'>"
          "loss, nats per byte</text>\n",
          (kTop + kBottom) / 2);
}

/* Each value with its neighbours averaged in, reach to either side. */
static void write_curve(FILE* f, const scale_t* s, const float* losses, int steps, int reach,
                        const char* style) {
  fprintf(f, "<polyline fill='none' %s points='", style);
  for (int i = 0; i < steps; ++i) {
    const int first = i > reach ? i - reach : 0;
    const int end = i + reach + 1 < steps ? i + reach + 1 : steps;
    double sum = 0;
    int count = 0;
    for (int j = first; j < end; ++j) {
      if (!isfinite(losses[j])) continue;
      sum += (double)losses[j];
      ++count;
    }
    if (isfinite(losses[i])) fprintf(f, "%.1f,%.1f ", x_of(s, i + 1), y_of(s, sum / count));
  }
  fputs("'/>\n", f);
}

static void write_svg(FILE* f, const float* losses, int steps) {
  const scale_t s = scale_of(losses, steps);
  fprintf(f,
          "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' "
          "font-size='13'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
          kWidth, kHeight);
  fprintf(f,
          "<text x='%d' y='28' text-anchor='middle' font-size='17'>Training loss, %.2f to %.2f "
          "in %d steps</text>\n",
          (kLeft + kRight) / 2, (double)losses[0], (double)losses[steps - 1], steps);
  write_axes(f, &s);
  write_curve(f, &s, losses, steps, 0, "stroke='#9ecae1'");
  write_curve(f, &s, losses, steps, steps / 50, "stroke='#08519c' stroke-width='2'");
  fprintf(f, "<text x='%d' y='%d' text-anchor='end' fill='#6baed6'>each step</text>\n", kRight - 10,
          kTop + 20);
  fprintf(f, "<text x='%d' y='%d' text-anchor='end' fill='#08519c'>mean of its neighbours</text>\n",
          kRight - 10, kTop + 40);
  fputs("</svg>\n", f);
}

static void write_csv(FILE* f, const float* losses, int steps) {
  fputs("step,loss\n", f);
  for (int i = 0; i < steps; ++i) fprintf(f, "%d,%.6f\n", i + 1, (double)losses[i]);
}

static int write_file(const char* directory, const char* name, const float* losses, int steps,
                      void (*write)(FILE*, const float*, int)) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE* f = fopen(path, "w");
  if (f) write(f, losses, steps);
  /* A full disk shows at the latest when the file is closed. */
  const int bad = !f || ferror(f);
  if ((f && fclose(f) != 0) || bad) {
    fprintf(stderr, "cannot write %s: %s\n", path, strerror(errno));
    return 0;
  }
  return 1;
}

int write_loss_plot(const char* directory, const float* losses, int steps) {
  return write_file(directory, "loss.svg", losses, steps, write_svg) &&
         write_file(directory, "loss.csv", losses, steps, write_csv);
}
