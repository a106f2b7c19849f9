package strictyaml

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// joinSurrogates replaces the pairs of surrogates in a JSON text, such as "\ud83d\ude00", by the
// characters they stand for: JSON escapes characters beyond 16 bits that way, which YAML does not
// understand. Spaces behind each string make up for its shorter text, so that all values stay in
// their columns. joinSurrogates returns any other text unchanged, and leaves half a pair to YAML,
// which refuses it.
func joinSurrogates(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\u`)) || !json.Valid(text) {
		return text
	}
	joined := make([]byte, 0, len(text))
	inside, lost := false, 0
	for i := 0; i < len(text); {
		c, n := decodeSurrogatePair(text[i:])
		switch {
		case inside && n > 0:
			joined = utf8.AppendRune(joined, c)
			i, lost = i+n, lost+n-1
			continue
		case inside && text[i] == '\\':
			joined = append(joined, text[i])
			i++
		case text[i] == '"':
			inside = !inside
		}
		joined = append(joined, text[i])
		if i++; !inside {
			joined = append(joined, bytes.Repeat([]byte{' '}, lost)...)
			lost = 0
		}
	}
	return joined
}

// decodeSurrogatePair returns the character that the pair of surrogates at the beginning of a text
// stands for, and the length of the pair, or 0 if the text begins with anything else.
func decodeSurrogatePair(text []byte) (c rune, n int) {
	const half = len(`\ud83d`)
	if len(text) < 2*half || text[0] != '\\' || text[half] != '\\' {
		return 0, 0
	}
	high, low := decodeSurrogate(text[:half]), decodeSurrogate(text[half:2*half])
	if c = utf16.DecodeRune(high, low); c == utf8.RuneError {
		return 0, 0
	}
	return c, 2 * half
}

// decodeSurrogate returns the code unit of an escape such as \ud83d, or 0 if it is not a surrogate.
func decodeSurrogate(escape []byte) rune {
	if escape[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(escape[2:]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
