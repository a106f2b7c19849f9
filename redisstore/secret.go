package redisstore

import (
	"crypto/rand"
	"encoding/hex"
)

// secretField of PREFIX:meta holds the secret by which the ids of holds are sealed, in hexadecimal.
const secretField = "hold-secret"

// HoldSecret returns the secret that all users of the data have in common, or nil until a probe has
// succeeded. If Redis loses it, a store that has it writes it again.
func (s *Store) HoldSecret() []byte {
	if secret := s.secret.Load(); secret != nil {
		return *secret
	}
	return nil
}

// adoptSecret adopts the secret that Redis has.
func (s *Store) adoptSecret(have map[string]string) {
	if secret, err := hex.DecodeString(have[secretField]); err == nil && len(secret) > 0 {
		s.secret.Store(&secret)
	}
}

// secretText returns the secret to write where Redis has none: this store's, or a new one.
func (s *Store) secretText() string {
	secret := s.HoldSecret()
	if secret == nil {
		secret = make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
	}
	return hex.EncodeToString(secret)
}
