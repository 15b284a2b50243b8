/* Marks for `dagc record`: what is recorded begins and ends here. They do nothing in a program that is not recorded.
 *
 *   #include <dagc_record.h>
 *   DAGC_RECORD_BEGIN();
 *   for (int t = 0; t < steps; ++t) { ... }
 *   DAGC_RECORD_END();
 */
#ifndef DAGC_RECORD_H
#define DAGC_RECORD_H

#ifdef __cplusplus
extern "C" {
#endif
void dagc_record_mark(const char* name) __attribute__((weak));
#ifdef __cplusplus
}
#endif

#define DAGC_RECORD_MARK(name) (dagc_record_mark ? dagc_record_mark(name) : (void)0)
#define DAGC_RECORD_BEGIN() DAGC_RECORD_MARK("BEGIN")
#define DAGC_RECORD_END() DAGC_RECORD_MARK("END")

#endif
