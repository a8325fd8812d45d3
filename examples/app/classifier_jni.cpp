// What Classifier.java declares: the picture is a direct buffer, so nothing is copied.
#include <jni.h>

#include <cstdint>
#include <vector>

#include "classifier.h"

namespace {

jfloatArray refuse(JNIEnv *env, const char *why) {
  if (jclass kind = env->FindClass("java/lang/IllegalArgumentException")) env->ThrowNew(kind, why);
  return nullptr;
}

}  // namespace

extern "C" JNIEXPORT jfloatArray JNICALL
Java_Classifier_scores(JNIEnv *env, jclass, jobject pixels, jint width, jint height, jint row_bytes) {
  const auto *address = static_cast<const uint8_t *>(env->GetDirectBufferAddress(pixels));
  if (address == nullptr) return refuse(env, "pixels must be a direct buffer: ByteBuffer.allocateDirect");
  if (width < 1 || height < 1 || row_bytes / 4 < width) return refuse(env, "no pixels, or rows that are too short");
  if (int64_t{row_bytes} * height > env->GetDirectBufferCapacity(pixels))
    return refuse(env, "the buffer is smaller than the picture");
  const classifier_picture picture{address, static_cast<uint32_t>(width), static_cast<uint32_t>(height), 4,
                                   static_cast<uint32_t>(row_bytes)};
  std::vector<float> scores(classifier_outputs());
  if (classifier_classify(&picture, scores.data()) < 0) return refuse(env, "there is not enough memory");
  jfloatArray found = env->NewFloatArray(static_cast<jsize>(scores.size()));
  if (found != nullptr) env->SetFloatArrayRegion(found, 0, static_cast<jsize>(scores.size()), scores.data());
  return found;
}
