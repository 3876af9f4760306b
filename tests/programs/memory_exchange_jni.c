// SPDX-License-Identifier: BSD-3-Clause
// memory_exchange.c for Java: MemoryCheck.java.
#include <jni.h>
#include <stddef.h>
#include <stdint.h>
int exchange_open(void);
void* exchange_register(void*, size_t);
int exchange_deregister(void*);
int exchange_peer_writes(void*, size_t, uint32_t);
int exchange_peer_reads(void*, size_t, uint32_t);
void exchange_fill(uint32_t, void*, size_t);
long exchange_find_wrong(uint32_t, const void*, size_t);
#define AT (*env)->GetDirectBufferAddress(env, at), (size_t)(*env)->GetDirectBufferCapacity(env, at)
#define F(type, name) JNIEXPORT type JNICALL Java_MemoryCheck_##name
F(jint, open)(JNIEnv* env, jclass c) {
  (void)env;
  (void)c;
  return exchange_open();
}
F(jlong, register)(JNIEnv* env, jclass c, jobject at) {
  (void)c;
  return (jlong)exchange_register(AT);
}
F(jint, deregister)(JNIEnv* env, jclass c, jlong r) {
  (void)env;
  (void)c;
  return exchange_deregister((void*)r);
}
F(jint, peerWrites)(JNIEnv* env, jclass c, jlong r, jobject at, jint seed) {
  (void)c;
  return exchange_peer_writes((void*)r, (size_t)(*env)->GetDirectBufferCapacity(env, at),
                              (uint32_t)seed);
}
F(jint, peerReads)(JNIEnv* env, jclass c, jlong r, jobject at, jint seed) {
  (void)c;
  return exchange_peer_reads((void*)r, (size_t)(*env)->GetDirectBufferCapacity(env, at),
                             (uint32_t)seed);
}
F(void, fill)(JNIEnv* env, jclass c, jint seed, jobject at) {
  (void)c;
  exchange_fill((uint32_t)seed, AT);
}
F(jlong, findWrong)(JNIEnv* env, jclass c, jint seed, jobject at) {
  (void)c;
  return exchange_find_wrong((uint32_t)seed, AT);
}
