package codec

import (
	"math/bits"

	"twotier.dev/twotier"
)

// fieldSet is a set of fields of an operation.
type fieldSet uint32

// The fields that operations have.
const (
	fieldOp fieldSet = 1 << iota
	fieldNS
	fieldKey
	fieldN
	fieldTS
	fieldAck
	fieldLimits
	fieldRules
	fieldChecks
	fieldCountDenied
	fieldWindow
	fieldAt
	fieldDryRun
	fieldValues
	fieldCharge
	fieldHold
)

// fieldNames are the names of the fields in the order of their bits.
var fieldNames = [...]string{"op", "ns", "key", "n", "ts", "ack", "limits", "rules",
	"checks", "count_denied", "window", "at", "dry_run", "values", "charge", "hold"}

// ofCheck is the set of fields that make up a check.
const ofCheck = fieldNS | fieldKey | fieldN | fieldLimits | fieldRules

// fieldOf returns the field of that name, or 0 if there is none.
func fieldOf(name []byte) fieldSet {
	switch string(name) {
	case "op":
		return fieldOp
	case "ns":
		return fieldNS
	case "key":
		return fieldKey
	case "n":
		return fieldN
	case "ts":
		return fieldTS
	case "ack":
		return fieldAck
	case "limits":
		return fieldLimits
	case "rules":
		return fieldRules
	case "checks":
		return fieldChecks
	case "count_denied":
		return fieldCountDenied
	case "window":
		return fieldWindow
	case "at":
		return fieldAt
	case "dry_run":
		return fieldDryRun
	case "values":
		return fieldValues
	case "charge":
		return fieldCharge
	case "hold":
		return fieldHold
	}
	return 0
}

// fieldsOf returns the fields that operations of a kind have, and their names for error messages.
func fieldsOf(kind twotier.Kind, named bool) (fieldSet, string) {
	switch {
	case named && kind == twotier.Add:
		return ofCheck | fieldTS | fieldAck, "add has ns, key, n, ts, ack, limits and rules"
	case named && kind == twotier.Count:
		return fieldNS | fieldKey | fieldWindow | fieldAt, "count has ns, key, window and at"
	case named:
		return ofCheck | fieldTS | fieldAck | fieldChecks | fieldCountDenied | fieldCharge |
				fieldDryRun | fieldHold,
			"acquire has ns, key, n, ts, ack, limits, rules, checks, count_denied, charge, " +
				"dry_run and hold"
	}
	return 1<<len(fieldNames) - 1, "want op and the fields of that operation"
}

// name returns the name of the first field in the set.
func (f fieldSet) name() string { return fieldNames[bits.TrailingZeros32(uint32(f))] }
