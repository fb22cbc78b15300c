/* SPDX-License-Identifier: BSD-3-Clause */

/* Errors that carry a sentence for the user.  The engine does not log: who
 * calls it decides where the sentence goes.
 */

#ifndef FATBATCH_ERROR_H
#define FATBATCH_ERROR_H

#include "fatbatch.h"

/* Fill err->message and return code (-errno), so that a function can end
 * with it.  The cause's text is the caller's to add: fatbatch_strerror().
 */
extern int error_set (struct fatbatch_error *err, int code,
                      const char *fmt, ...)
  __attribute__ ((format (printf, 3, 4)));

#endif /* FATBATCH_ERROR_H */
