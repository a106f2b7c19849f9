package twotier

import "slices"

// ImportedNamespace begins the name of the namespace that has the marks of the keys of another one,
// whose name follows a slash: a mark counts the events of one key that one source has contributed.
// It has the ladder and the other settings of that namespace, and the partition of its key, so that
// both are decided, flushed, handed over and lost together. Clients write marks like other keys.
const ImportedNamespace = "@imported"

// Imports reports whether an operation counts what another limiter has counted: it counts a mark
// beside the keys.
func (op *Op) Imports() bool {
	return len(op.Checks) > 1 && slices.ContainsFunc(op.Checks, func(c Check) bool {
		return IsImported(c.NS)
	})
}

// IsImported reports whether a namespace holds marks, see [ImportedNamespace].
func IsImported(ns []byte) bool { return Companion(ns) == ImportedNamespace }

// ImportedKey returns the namespace and the key of the mark of a source of that name on a key. The
// name has no slash.
func ImportedKey(ns, name, key string) (markNS, markKey string) {
	if ns == "" {
		ns = DefaultNamespace
	}
	return ImportedNamespace + "/" + ns, name + "/" + key
}

// ResetKey returns the namespace and the key of the mark that counts the resets of a key: that of a
// source without a name.
func ResetKey(ns, key []byte) (markNS, markKey []byte) {
	return companionKey(ImportedNamespace, ns, "", key)
}
