package rule

import (
	"errors"
	"time"
)

// MaxText bounds a document of rules, in bytes.
const MaxText = 256 << 10

// MaxVersions is how many versions of the document are kept. A new one takes the place of the
// oldest.
const MaxVersions = 20

// ErrMoved is returned when a version was to follow another one that is no longer the newest.
var ErrMoved = errors.New("the rules have changed since")

// ErrNoVersion is returned for a version that there has never been, or that is no longer kept.
var ErrNoVersion = errors.New("no such version of the rules is kept")

// DocumentError says what is wrong with a document of rules: each mistake on a line of its own,
// with its line and column in the document.
type DocumentError struct{ Err error }

// Error returns the mistakes.
func (e *DocumentError) Error() string { return e.Err.Error() }

// Unwrap returns what was wrong.
func (e *DocumentError) Unwrap() error { return e.Err }

// Version is one version of the document of rules.
type Version struct {
	// Number counts versions from 1 on. 0 stands for rules that no store has: those that a node was
	// started with while it could not reach its store, or the empty document before the first
	// version.
	Number int64
	// ID tells apart two versions of one number, of which the store has lost one.
	ID string
	// Text is the document as it was written, in YAML.
	Text []byte
	// Who is the name of the token, or the file and node, that it is from, and At when it was
	// stored.
	Who string
	At  time.Time
}
