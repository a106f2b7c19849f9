package token

import (
	"crypto/sha256"
	"crypto/subtle"

	"twotier.dev/twotier"
)

// Master is a single token with every right. A nil Master matches no token.
type Master struct {
	hash  [sha256.Size]byte
	grant *twotier.Grant
}

// NewMaster returns the master token of that text, or nil if it is empty. name appears in messages.
func NewMaster(name, text string) *Master {
	if text == "" {
		return nil
	}
	return &Master{hash: sha256.Sum256([]byte(text)), grant: twotier.FullGrant(name)}
}

// Find returns a grant of everything, or nil if presented is another token.
func (m *Master) Find(presented []byte) *twotier.Grant {
	if m == nil {
		return nil
	}
	sum := sha256.Sum256(presented)
	if subtle.ConstantTimeCompare(sum[:], m.hash[:]) != 1 {
		return nil
	}
	return m.grant
}
