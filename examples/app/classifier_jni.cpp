// What Classifier.java declares: the picture is a direct buffer, so nothing is copied. Texts are bytes in UTF-8, because JNI's
// own strings have an encoding of their own.
#include <jni.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "classifier.h"

#define JAVA(name) Java_Classifier_##name  // in a package: Java_com_example_Classifier_##name

namespace {

std::nullptr_t refuse(JNIEnv *env, const char *why) {
  if (jclass kind = env->FindClass("java/lang/IllegalArgumentException")) env->ThrowNew(kind, why);
  return nullptr;
}

jbyteArray bytes_of(JNIEnv *env, const char *text) {
  const auto size = static_cast<jsize>(std::strlen(text));
  jbyteArray made = env->NewByteArray(size);
  if (made != nullptr) env->SetByteArrayRegion(made, 0, size, reinterpret_cast<const jbyte *>(text));
  return made;
}

// The picture in a direct buffer; false where it cannot be one, and Java has thrown.
bool read_picture(JNIEnv *env, jobject pixels, jint width, jint height, jint row_bytes, classifier_picture &picture) {
  const auto *address = pixels == nullptr ? nullptr : static_cast<const uint8_t *>(env->GetDirectBufferAddress(pixels));
  const char *why = nullptr;
  if (address == nullptr) why = "pixels must be a direct buffer: ByteBuffer.allocateDirect";
  else if (width < 1 || height < 1 || row_bytes / 4 < width) why = "no pixels, or rows that are too short";
  else if (int64_t{row_bytes} * (height - 1) + int64_t{4} * width > env->GetDirectBufferCapacity(pixels))
    why = "the buffer is smaller than the picture";  // whose last row may end with its pixels
  picture = {address, static_cast<uint32_t>(width), static_cast<uint32_t>(height), 4, static_cast<uint32_t>(row_bytes), 0};
  if (why != nullptr) refuse(env, why);
  return why == nullptr;
}

// A plane of a direct buffer with at least so many bytes; null where it cannot be one.
const uint8_t *plane_of(JNIEnv *env, jobject buffer, int64_t size) {
  const auto *address = buffer == nullptr ? nullptr : static_cast<const uint8_t *>(env->GetDirectBufferAddress(buffer));
  return address != nullptr && env->GetDirectBufferCapacity(buffer) >= size ? address : nullptr;
}

}  // namespace

extern "C" JNIEXPORT jbyteArray JNICALL JAVA(openFile)(JNIEnv *env, jclass, jbyteArray path, jint threads) {
  char why[400] = "";
  jbyte *named = path == nullptr ? nullptr : env->GetByteArrayElements(path, nullptr);  // ends with a 0
  if (path != nullptr && named == nullptr) return nullptr;  // Java has thrown already
  const int opened = classifier_open_update(reinterpret_cast<const char *>(named), threads, why, sizeof why);
  if (path != nullptr) env->ReleaseByteArrayElements(path, named, JNI_ABORT);
  if (opened < 0) return refuse(env, "no network can be opened: threads go from 0 to 256, or there is not enough memory");
  return path == nullptr || opened == 1 ? nullptr : bytes_of(env, why);
}

extern "C" JNIEXPORT jbyteArray JNICALL JAVA(nameBytes)(JNIEnv *env, jclass, jint index) {
  return bytes_of(env, classifier_class(index));
}

extern "C" JNIEXPORT jfloatArray JNICALL
JAVA(scores)(JNIEnv *env, jclass, jobject pixels, jint width, jint height, jint row_bytes) {
  classifier_picture picture{};
  if (!read_picture(env, pixels, width, height, row_bytes, picture)) return nullptr;
  std::vector<float> scores(classifier_outputs());
  if (classifier_classify(&picture, scores.data()) < 0) return refuse(env, "there is not enough memory");
  jfloatArray found = env->NewFloatArray(static_cast<jsize>(scores.size()));
  if (found != nullptr) env->SetFloatArrayRegion(found, 0, static_cast<jsize>(scores.size()), scores.data());
  return found;
}

extern "C" JNIEXPORT void JNICALL
JAVA(convert)(JNIEnv *env, jclass, jobject y, jobject u, jobject v, jint width, jint height, jint y_row_bytes,
              jint uv_row_bytes, jint uv_pixel_bytes, jint turn, jobject pixels) {
  if (width < 1 || height < 1 || y_row_bytes < 1 || uv_row_bytes < 1 || uv_pixel_bytes < 1 || turn < 0) {
    refuse(env, "no pixels, rows without bytes, or a negative turn");
    return;
  }
  // The last rows may end with their pixels.
  const int64_t of_y = int64_t{y_row_bytes} * (height - 1) + width;
  const int64_t of_uv = int64_t{uv_row_bytes} * ((height - 1) / 2) + int64_t{uv_pixel_bytes} * ((width - 1) / 2) + 1;
  const uint8_t *to = plane_of(env, pixels, int64_t{4} * width * height);
  const classifier_frame frame{plane_of(env, y, of_y), plane_of(env, u, of_uv), plane_of(env, v, of_uv),
                               static_cast<uint32_t>(width), static_cast<uint32_t>(height),
                               static_cast<uint32_t>(y_row_bytes), static_cast<uint32_t>(uv_row_bytes),
                               static_cast<uint32_t>(uv_pixel_bytes), static_cast<uint32_t>(turn), 0};
  if (frame.y == nullptr || frame.u == nullptr || frame.v == nullptr || to == nullptr)
    refuse(env, "y, u, v and pixels must be direct buffers, large enough for the frame");
  else if (classifier_convert(&frame, const_cast<uint8_t *>(to)) != 0)
    refuse(env, "rows are too short, uvPixelBytes is not 1 or 2, or turn is not 0, 90, 180 or 270");
}

extern "C" JNIEXPORT jint JNICALL JAVA(maskWidth)(JNIEnv *, jclass) { return static_cast<jint>(classifier_mask_width()); }

extern "C" JNIEXPORT jint JNICALL JAVA(maskHeight)(JNIEnv *, jclass) { return static_cast<jint>(classifier_mask_height()); }

extern "C" JNIEXPORT jbyteArray JNICALL
JAVA(mask)(JNIEnv *env, jclass, jobject pixels, jint width, jint height, jint row_bytes) {
  const size_t pixels_of_mask = size_t{classifier_mask_height()} * classifier_mask_width();
  if (pixels_of_mask == 0) return refuse(env, "the network gives no masks: call scores");
  classifier_picture picture{};
  if (!read_picture(env, pixels, width, height, row_bytes, picture)) return nullptr;
  std::unique_ptr<uint8_t[]> mask(new (std::nothrow) uint8_t[pixels_of_mask]);
  if (mask == nullptr || classifier_mask(&picture, mask.get()) != 0) return refuse(env, "there is not enough memory");
  const auto size = static_cast<jsize>(pixels_of_mask);
  jbyteArray found = env->NewByteArray(size);
  if (found != nullptr) env->SetByteArrayRegion(found, 0, size, reinterpret_cast<const jbyte *>(mask.get()));
  return found;
}
