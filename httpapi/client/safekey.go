package client

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hashedPrefix begins every key that stands for another one, and so no other key that is sent by a
// [Gate].
const hashedPrefix = "sha256:"

// maxKey is how many bytes of a key a server takes.
const maxKey = 256

// SafeKey returns a key that a server takes: key itself if it is 1 to 256 bytes of UTF-8 without
// control characters, and otherwise "sha256:" and the SHA-256 digest (FIPS 180-4) of its bytes in
// lower-case hexadecimal, 71 characters. A key that begins with "sha256:" is replaced, too, so that
// no key that a client chooses is the replacement of another. That never changes: what is counted
// under a replacement is found again by any version.
func SafeKey(key string) string {
	if acceptable(key) && !strings.HasPrefix(key, hashedPrefix) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashedPrefix + hex.EncodeToString(sum[:])
}

// acceptable reports whether a server takes the key.
func acceptable(key string) bool {
	return key != "" && len(key) <= maxKey && utf8.ValidString(key) &&
		!strings.ContainsFunc(key, unicode.IsControl)
}
