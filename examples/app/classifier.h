/* From a picture to scores, around what `membound export --cpp` wrote: in C, which C++, Kotlin, Java and Swift can call.
 * Every function may be called from any thread; those that run the network wait for each other. */
#ifndef CLASSIFIER_H
#define CLASSIFIER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Pixels begin with R, G, B, or with B, G, R: 3 bytes each, or 4, of which the last is ignored. Pictures must be upright. */
typedef struct {
  const uint8_t *pixels;
  uint32_t width, height;
  uint32_t pixel_bytes; /* 3 or 4 */
  uint32_t row_bytes;   /* from one row to the next: width * pixel_bytes, or more */
  uint32_t bgra;        /* 0: R, G, B; 1: B, G, R, as the frames of AVCapture (BGRA) and OpenCV (BGR) are */
} classifier_picture;

/* A camera's frame in YUV 4:2:0 with 8 bits, such as YUV_420_888 of Android: a byte of y for each pixel, one of u and one of v
 * for each 2 x 2 pixels. Of NV21, v begins where y ends, u is v + 1, and uv_pixel_bytes is 2; of NV12, u comes before v. */
typedef struct {
  const uint8_t *y, *u, *v;
  uint32_t width, height;
  uint32_t y_row_bytes;    /* from one row of y to the next: width, or more */
  uint32_t uv_row_bytes;   /* the same of u and of v */
  uint32_t uv_pixel_bytes; /* from one u to the next: 1, or 2 where u and v alternate */
  uint32_t turn;           /* clockwise, until the picture is upright: 0, 90, 180 or 270, as Android's rotationDegrees */
  uint32_t video_range;    /* 0: y goes from 0 to 255, as in JPEG, usual on Android; 1: from 16 to 235 */
} classifier_frame;

/* Make the network ready for 1 to 256 threads; 0 takes all cores. The first call that succeeds decides, and one that runs the
 * network is such a call, with one thread. Returns 0, or -1: no such number of threads, or memory is short. */
int classifier_open(int threads);

/* The same with the network of a file that `membound export --cpp-file` wrote, such as one that the app has downloaded. If it
 * cannot be opened, the network that is compiled in serves instead; if another network is open already, that one stays
 * in use.
 * Returns 1 if the file serves, 0 if not, and why, in words, in `why`, which may be NULL; -1 as above. */
int classifier_open_update(const char *path, int threads, char *why, size_t why_size);

uint32_t classifier_input_bytes(void); /* of the image that classifier_run takes */
uint32_t classifier_outputs(void);     /* how many scores there are */

/* Resize a picture until it just covers the network's image, and take its center, as net.read() does it in Python. Some pixels
 * of pictures more than twice as high as wide, and of gray ones made of color, may be off by 1 of 255; all others are the same.
 * Returns 0, or -1 for an invalid picture: no pixels, rows shorter than their pixels, or a field that has
 * another value than those above (set all, or begin with `= {0}`). */
int classifier_prepare(const classifier_picture *picture, uint8_t *image);

/* Convert a frame to a picture (BT.601, JPEG's formula) and turn it upright: 4 bytes a pixel, R, G, B and 255, width x height of
 * them; of a turn of 90 or 270, height x width. Describe it with classifier_picture. Returns 0, or -1 for an invalid frame. */
int classifier_convert(const classifier_frame *frame, uint8_t *rgba);

/* Run the network on an image. `scores` may be NULL. Returns the best class (of a network that gives masks: 0), or -1 when
 * memory is short. */
int32_t classifier_run(const uint8_t *image, float *scores);

/* The name of a class; "" where the file has no names. */
const char *classifier_class(int32_t best);

/* How the network in use computes: "float" or "int8". Before the first call, that of the network that is compiled in. */
const char *classifier_engine(void);

/* The instruction set that the network's kernels use: "neon" on an Arm phone; "scalar" is the slowest. */
const char *classifier_kernels(void);

/* Both of these. Returns the best class, or -1. */
int32_t classifier_classify(const classifier_picture *picture, float *scores);

/* Of a network that gives masks: the class of each pixel of the picture's center, classifier_mask_height() rows of
 * classifier_mask_width(). Returns 0, or -1. Other networks have masks of 0 x 0. To lie over the picture, a mask is scaled
 * to the largest rectangle of the network's shape that fits into the picture, in its center. */
uint32_t classifier_mask_width(void);
uint32_t classifier_mask_height(void);
int classifier_mask(const classifier_picture *picture, uint8_t *mask);

#ifdef __cplusplus
}
#endif
#endif
