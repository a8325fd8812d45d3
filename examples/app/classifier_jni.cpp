// What Classifier.java declares: the picture is a direct buffer, so nothing is copied. Texts are bytes in UTF-8, because JNI's
// own strings have an encoding of their own.
#include <jni.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
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
  const auto *address = pixels == nullptr ? nullptr : static_cast<const uint8_t *>(env->GetDirectBufferAddress(pixels));
  if (address == nullptr) return refuse(env, "pixels must be a direct buffer: ByteBuffer.allocateDirect");
  if (width < 1 || height < 1 || row_bytes / 4 < width) return refuse(env, "no pixels, or rows that are too short");
  if (int64_t{row_bytes} * (height - 1) + int64_t{4} * width > env->GetDirectBufferCapacity(pixels))  // the last row may end
    return refuse(env, "the buffer is smaller than the picture");                                     // with its pixels
  const classifier_picture picture{address, static_cast<uint32_t>(width), static_cast<uint32_t>(height), 4,
                                   static_cast<uint32_t>(row_bytes), 0};
  std::vector<float> scores(classifier_outputs());
  if (classifier_classify(&picture, scores.data()) < 0) return refuse(env, "there is not enough memory");
  jfloatArray found = env->NewFloatArray(static_cast<jsize>(scores.size()));
  if (found != nullptr) env->SetFloatArrayRegion(found, 0, static_cast<jsize>(scores.size()), scores.data());
  return found;
}
