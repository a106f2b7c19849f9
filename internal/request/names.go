package request

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"twotier.dev/twotier"
)

// Verdicts is the namespace of the history of verdicts. Clients can read it but not write it: the
// name is not valid for a namespace of theirs.
const Verdicts = "@verdicts"

// ImportedNS reports whether b may be the namespace of the marks of imported events, see
// [twotier.ImportedNamespace].
func ImportedNS(b []byte) bool {
	of, ok := bytes.CutPrefix(b, []byte(twotier.ImportedNamespace+"/"))
	return ok && ValidNS(of)
}

// ReadableNS reports whether b may be the name of a namespace to read.
func ReadableNS(b []byte) bool {
	return ValidNS(b) || string(b) == Verdicts || ImportedNS(b)
}

// hashedPrefix is the prefix of keys that stand for values.
const hashedPrefix = "sha256:"

// KeyOf returns the key of a value that a proxy forwards: the value, or its [HashedKey] if it is
// not a valid key or begins as a HashedKey does. So no value collides with the hash of another one.
func KeyOf(value []byte) []byte {
	if ValidKey(value) && !IsHashed(value) {
		return value
	}
	return HashedKey(value)
}

// HashedKey returns a key that stands for a value: "sha256:" and the SHA-256 digest (FIPS 180-4) of
// its bytes in lower-case hexadecimal, 71 characters in all.
func HashedKey(value []byte) []byte {
	sum := sha256.Sum256(value)
	return hex.AppendEncode([]byte(hashedPrefix), sum[:])
}

// IsHashed reports whether a value begins as a [HashedKey] does.
func IsHashed(value []byte) bool { return bytes.HasPrefix(value, []byte(hashedPrefix)) }

const (
	// WantBy lists the valid orders of a list of keys.
	WantBy = "want count, refused, shadow or concurrent"
	// ByConcurrent is the order by open holds.
	ByConcurrent = "concurrent"
	// WantNoTopWindow is the remedy for a window with ByConcurrent.
	WantNoTopWindow = "leave it out: concurrent lists the holds that are open now"
)

// ValidTopOrder reports whether by is a valid order of a list of keys.
func ValidTopOrder(by string) bool {
	return by == "count" || by == "refused" || by == "shadow" || by == ByConcurrent
}

// ParseOnExpiry reads what happens to a hold at its end if nobody has settled it. wrong describes
// the valid values if the text is none, and is empty otherwise.
func ParseOnExpiry(text []byte) (release bool, wrong string) {
	switch string(text) {
	case "keep":
		return false, ""
	case "release":
		return true, ""
	}
	return false, `want "keep" or "release", got "` + Clip(text) + `"`
}
