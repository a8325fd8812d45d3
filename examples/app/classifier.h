/* From a picture to scores, around what `membound export --cpp` wrote: in C, which C++, Kotlin, Java and Swift can call.
 * Every function may be called from any thread; those that run the network wait for each other. */
#ifndef CLASSIFIER_H
#define CLASSIFIER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Pixels begin with R, G, B: 3 bytes each, or 4, of which the last is ignored. Pictures must be upright. */
typedef struct {
  const uint8_t *pixels;
  uint32_t width, height;
  uint32_t pixel_bytes; /* 3 or 4 */
  uint32_t row_bytes;   /* from one row to the next: width * pixel_bytes, or more */
} classifier_picture;

/* Make the network ready for as many threads; 0 takes all cores. The first call decides, and one that runs the network is
 * such a call, with one thread. Returns 0, or -1 when memory is short. */
int classifier_open(int threads);

uint32_t classifier_input_bytes(void); /* of the image that classifier_run takes */
uint32_t classifier_outputs(void);     /* how many scores there are */

/* Resize and crop a picture to the network's image, as net.read() does it in Python: of tall pictures, and of gray ones
 * made of color, some pixels are off by 1 of 255; all others are the same.
 * Returns 0, or -1 for a picture that cannot be: no pixels, or rows shorter than their pixels. */
int classifier_prepare(const classifier_picture *picture, uint8_t *image);

/* Run the network on an image. `scores` may be NULL. Returns the best class, or -1 when memory is short. */
int32_t classifier_run(const uint8_t *image, float *scores);

/* Both of these. Returns the best class, or -1. */
int32_t classifier_classify(const classifier_picture *picture, float *scores);

#ifdef __cplusplus
}
#endif
#endif
