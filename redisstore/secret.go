package redisstore

import (
	"context"
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

// restoreSecret writes this store's secret over a younger one that Redis has with the same seed:
// Redis lost the older one, and a new process with a configured seed has made another. It reports
// false if PREFIX:meta must be read again.
func (s *Store) restoreSecret(ctx context.Context, have map[string]string) (done bool, err error) {
	mine, theirs := hexSecret(s.HoldSecret()), have[secretField]
	if mine == "" || theirs == "" || theirs == mine || s.since >= placedSince(have) {
		return true, nil
	}
	return false, s.changeMeta(ctx, sinceField, have[sinceField], s.since,
		secretField, theirs, mine)
}

// hexSecret returns the text of a secret in Redis, or "" if there is none.
func hexSecret(secret []byte) string { return hex.EncodeToString(secret) }

// secretText returns the secret to write where Redis has none: this store's, or a new one.
func (s *Store) secretText() string {
	secret := s.HoldSecret()
	if secret == nil {
		secret = make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
	}
	return hexSecret(secret)
}
