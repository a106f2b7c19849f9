package twotier

// ValuesNamespace begins the name of the namespace that has the different values of the keys of
// another one, whose name follows a slash. It has the settings of that namespace, and the
// partition of its key, so that both are decided, flushed, handed over and lost together.
const ValuesNamespace = "@values"

// IsValues reports whether a namespace holds different values, see [ValuesNamespace].
func IsValues(ns []byte) bool { return Companion(ns) == ValuesNamespace }

// ValuesKey returns the namespace and the key that hold the different values of a key.
func ValuesKey(ns, key []byte) (valuesNS, valuesKey []byte) {
	return companionKey(ValuesNamespace, ns, "", key)
}

// ValuesOf are different values that a check of an operation has beside its events: an Acquire adds
// them to the check's key if its limits, and all others of the operation, allow it.
type ValuesOf struct {
	// Check is the position of the check.
	Check  int
	Values [][]byte
	Limits []Limit
	// Shadow lists the positions of limits that are compared but refuse nothing.
	Shadow []int
}
