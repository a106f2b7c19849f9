package resp

import "twotier.dev/twotier/internal/fields"

// optionOf returns the field with the option of that name, in any case, or 0.
func optionOf(word []byte) fields.Set {
	var b [16]byte // longer than any option
	if len(word) > len(b) {
		return 0
	}
	return fields.Worded(upper(b[:0], word))
}

// upper appends word in capital letters.
func upper(b, word []byte) []byte {
	for _, c := range word {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}
