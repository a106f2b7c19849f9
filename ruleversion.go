package twotier

import (
	"errors"
	"time"
)

// MaxRuleText bounds a document of rules, in bytes.
const MaxRuleText = 256 << 10

// MaxRuleVersions is the number of versions of the document that are kept. A new one replaces the
// oldest.
const MaxRuleVersions = 20

// ErrRulesMoved is returned for a new version whose predecessor is no longer the newest one.
var ErrRulesMoved = errors.New("the rules have changed since")

// ErrNoRuleVersion is returned for a version that never existed or is no longer kept.
var ErrNoRuleVersion = errors.New("no such version of the rules is kept")

// DocumentError lists the mistakes in a document of rules, one per line, each with its line and
// column in the document.
type DocumentError struct{ Err error }

// Error returns the mistakes.
func (e *DocumentError) Error() string { return e.Err.Error() }

// Unwrap returns the mistakes as an error.
func (e *DocumentError) Unwrap() error { return e.Err }

// RuleVersion is one version of the document of rules.
type RuleVersion struct {
	// Number counts versions from 1 on. 0 stands for rules that are in no store: the rules that a
	// node was started with while it could not reach its store, or the empty document before the
	// first version.
	Number int64
	// ID distinguishes two versions with the same number, one of which the store has lost.
	ID string
	// Text is the document as it was written, in YAML.
	Text []byte
	// Who is the author, either a token's name or a file and a node. At is when the version was
	// stored.
	Who string
	At  time.Time
}
