package client

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hashedPrefix is the prefix of every key that replaces another one. No other key that a [Gate]
// sends has it.
const hashedPrefix = "sha256:"

// maxKey is the longest key that a server accepts, in bytes.
const maxKey = 256

// SafeKey returns a key that a server accepts: key itself if it is 1 to 256 bytes of UTF-8 without
// control characters. Otherwise it is "sha256:" and the SHA-256 digest (FIPS 180-4) of its bytes in
// lower-case hexadecimal, 71 characters in all. A key that begins with "sha256:" is replaced as
// well, so that nobody can choose a key that is the replacement of another. The mapping is the same
// in every version, so counts under a replacement are always found again.
func SafeKey(key string) string {
	if acceptable(key) && !strings.HasPrefix(key, hashedPrefix) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashedPrefix + hex.EncodeToString(sum[:])
}

// acceptable reports whether a server accepts the key.
func acceptable(key string) bool {
	return key != "" && len(key) <= maxKey && utf8.ValidString(key) &&
		!strings.ContainsFunc(key, unicode.IsControl)
}
