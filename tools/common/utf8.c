/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding the characters of UTF-8. */
#include "utf8.h"

#include <stdint.h>

/* Bytes of the character that text begins with; 0: invalid. */
static int utf8_length(const char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    const int length = bytes[0] < 0x80             ? 1
                       : (bytes[0] & 0xe0) == 0xc0 ? 2
                       : (bytes[0] & 0xf0) == 0xe0 ? 3
                       : (bytes[0] & 0xf8) == 0xf0 ? 4
                                                   : 0;
    uint32_t code = bytes[0];

    if (length < 2)
        return length;
    code &= 0x7fu >> length;
    for (int i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (bytes[i] & 0x3f);
    }
    return code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0
                                                                                        : length;
}

const char *utf8_print(const char *text, FILE *to)
{
    const int length = utf8_length(text);

    if (length == 0) {
        fputs(UTF8_REPLACEMENT, to);
        return text + 1;
    }
    fwrite(text, 1, (size_t)length, to);
    return text + length;
}
