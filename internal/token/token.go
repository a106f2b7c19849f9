package token

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"twotier.dev/twotier"
)

const (
	// prefix lets people and secret scanners recognize a token.
	prefix     = "tt_"
	hashPrefix = "sha256:"
	randomSize = 32
)

// New returns a random token, and its hash for the file.
func New() (text, hash string) {
	var b [randomSize]byte
	rand.Read(b[:]) // never fails
	text = prefix + base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(text))
	return text, hashPrefix + hex.EncodeToString(sum[:])
}

// FormatLine returns the line of a token for the file.
func FormatLine(name, hash string, roles twotier.Role, namespaces string) (string, error) {
	line := strings.TrimSpace(fmt.Sprintf("%s %s %s %s", name, hash, roles, namespaces))
	_, err := Parse([]byte(line))
	return line, err
}

// Set holds the tokens of one file. It is immutable.
type Set struct{ byHash map[[sha256.Size]byte]entry }

type entry struct {
	hash  [sha256.Size]byte
	grant *twotier.Grant
}

// Parse reads a file. Its errors name the line but reveal nothing that may be secret.
func Parse(text []byte) (*Set, error) {
	s := &Set{byHash: map[[sha256.Size]byte]entry{}}
	names := map[string]int{}
	for i, line := range strings.Split(strings.TrimPrefix(string(text), "\ufeff"), "\n") {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) == "" {
			continue
		}
		if err := s.add(strings.Fields(line), names, i+1); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if len(s.byHash) == 0 {
		return nil, ErrNone
	}
	return s, nil
}

// add adds the token in the fields of line n.
func (s *Set) add(fields []string, names map[string]int, n int) error {
	if len(fields) < 3 || len(fields) > 4 {
		return fmt.Errorf("%d fields, want a name, a hash, roles and, unless it is for all, "+
			"namespaces", len(fields))
	}
	fields = append(fields, "")
	name := fields[0]
	if !isDisplayable(name) {
		return fmt.Errorf("the name is longer than %d bytes, or holds what can't be shown", maxName)
	}
	if names[name] != 0 {
		return fmt.Errorf("%q is already the name in line %d", name, names[name])
	}
	names[name] = n
	hash, err := parseHash(fields[1])
	if err != nil {
		return err
	}
	if _, ok := s.byHash[hash]; ok {
		return errors.New("the hash is already in another line")
	}
	g, err := twotier.NewGrant(name, fields[2], fields[3])
	s.byHash[hash] = entry{hash, g}
	return err
}

// maxName bounds the length of a token's name, in bytes: names appear in logs and answers.
const maxName = 64

// isDisplayable reports whether a name can be displayed as it is.
func isDisplayable(name string) bool {
	return len(name) <= maxName && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

func parseHash(text string) (hash [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if !ok || len(digits) != 2*sha256.Size {
		return hash, errors.New("the second field is not sha256: and 64 hexadecimal digits; " +
			"twotier token NAME makes one")
	}
	if _, err = hex.Decode(hash[:], []byte(digits)); err != nil {
		return hash, errors.New("the hash contains characters that are not hexadecimal digits")
	}
	return hash, nil
}

// Master returns the set of a single token that grants everything, or nil if its text is empty.
// name appears in messages.
func Master(name, text string) *Set {
	if text == "" {
		return nil
	}
	hash := sha256.Sum256([]byte(text))
	return &Set{byHash: map[[sha256.Size]byte]entry{hash: {hash, twotier.FullGrant(name)}}}
}

// Find returns the grant of a presented token, or nil if the token is not in the set. A nil set is
// empty.
func (s *Set) Find(presented []byte) *twotier.Grant {
	if s == nil {
		return nil
	}
	sum := sha256.Sum256(presented)
	e := s.byHash[sum]
	if subtle.ConstantTimeCompare(e.hash[:], sum[:]) != 1 {
		return nil
	}
	return e.grant
}

// Store holds the set that is in use. The zero value has no tokens.
type Store struct{ set atomic.Pointer[Set] }

// ErrNone is the error of a file without tokens.
var ErrNone = errors.New("it holds no tokens; twotier token NAME makes one")

// Load reads a file and starts using its tokens. If the file can't be used, the previous ones stay.
// A file without tokens withdraws the previously loaded ones.
func (s *Store) Load(text []byte) error {
	set, err := Parse(text)
	if errors.Is(err, ErrNone) && s.set.Load() != nil {
		set, err = new(Set), nil
	}
	if err == nil {
		s.set.Store(set)
	}
	return err
}

// Find returns the grant of a presented token, or nil if the token is unknown or nothing was
// loaded.
func (s *Store) Find(presented []byte) *twotier.Grant {
	return s.set.Load().Find(presented)
}
