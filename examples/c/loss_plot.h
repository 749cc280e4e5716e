/* A loss curve as an SVG picture and as numbers. */
#ifndef NXD_EXAMPLES_LOSS_PLOT_H
#define NXD_EXAMPLES_LOSS_PLOT_H

/* Writes directory/loss.svg and directory/loss.csv. 1, or 0 after a message on stderr. */
int write_loss_plot(const char* directory, const float* losses, int steps);

#endif
