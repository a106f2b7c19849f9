package codec

import (
	"math/bits"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/request"
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
	fieldOnExpiry
)

// fieldNames are the names of the fields in the order of their bits.
var fieldNames = [...]string{"op", "ns", "key", "n", "ts", "ack", "limits", "rules",
	"checks", "count_denied", "window", "at", "dry_run", "values", "charge", "hold",
	"on_expiry"}

// ofCheck is the set of fields that make up a check.
const ofCheck = fieldNS | fieldKey | fieldN | fieldLimits | fieldRules

// name returns the name of the first field in the set.
func (f fieldSet) name() string { return fieldNames[bits.TrailingZeros32(uint32(f))] }

// kindOf parses the value of "op".
func kindOf(b []byte) (twotier.Kind, *wire.Problem) {
	switch string(b) {
	case "add":
		return twotier.Add, nil
	case "count":
		return twotier.Count, nil
	case "acquire":
		return twotier.Acquire, nil
	}
	return 0, wire.FieldProblem("", `want "add", "count", "acquire" or "distinct", `+
		`got "`+request.Clip(b)+`"`)
}

// ackOf parses the value of "ack".
func ackOf(b []byte) (twotier.Ack, *wire.Problem) {
	switch string(b) {
	case "memory":
		return twotier.AckMemory, nil
	case "redis":
		return twotier.AckStore, nil
	case "replica":
		return twotier.AckReplica, nil
	case "disk":
		return twotier.AckDisk, nil
	}
	return 0, wire.FieldProblem("", `want "memory", "redis", "replica" or "disk", `+
		`got "`+request.Clip(b)+`"`)
}
