/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "error.h"

int
error_set (struct fatbatch_error *err, int code, const char *fmt, ...)
{
  va_list args;

  va_start (args, fmt);
  vsnprintf (err->message, sizeof err->message, fmt, args);
  va_end (args);
  return code;
}

const char *
fatbatch_strerror (int err)
{
  const char *text;

#ifdef HAVE_STRERRORDESC_NP
  text = strerrordesc_np (err);
#else
  text = strerror (err);
#endif
  return text ? text : "unknown error";
}
