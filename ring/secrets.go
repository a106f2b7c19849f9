package ring

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
)

// secrets holds the keys of the gossip: the first one encrypts, all of them decrypt.
type secrets struct {
	mu   sync.Mutex
	list [][]byte
	ring *memberlist.Keyring // nil until it is opened, and without secrets
}

// errPlain means that a running node can neither start nor stop encrypting, because the other nodes
// would not understand it.
var errPlain = errors.New("adding the first secret, or removing the last one, takes a restart")

// SetSecrets replaces the secrets of the gossip. The first one encrypts this node's messages; all
// of them are accepted. It may be called at any time, which allows a secret to be rotated without a
// pause: append the new one on all nodes, then move it to the front, then remove the old one.
func (r *Ring) SetSecrets(list [][]byte) error {
	r.secrets.mu.Lock()
	defer r.secrets.mu.Unlock()
	if r.secrets.ring == nil && r.list == nil {
		r.secrets.list = slices.Clone(list)
		return nil
	}
	if r.secrets.ring == nil || len(list) == 0 {
		return fmt.Errorf("ring: %w", errPlain)
	}
	return r.secrets.replaceLocked(list)
}

// keyring returns memberlist's keys, nil without secrets.
func (s *secrets) keyring() (*memberlist.Keyring, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil, nil
	}
	keys, err := gossipKeys(s.list)
	if err != nil {
		return nil, err
	}
	s.ring, err = memberlist.NewKeyring(keys, keys[0])
	return s.ring, err
}

// replaceLocked changes memberlist's keys such that, at every moment, all keys in both the old and
// the new list are accepted.
func (s *secrets) replaceLocked(list [][]byte) error {
	keys, err := gossipKeys(list)
	if err != nil {
		return err
	}
	for _, key := range keys {
		err = errors.Join(err, s.ring.AddKey(key))
	}
	if err = errors.Join(err, s.ring.UseKey(keys[0])); err != nil {
		return fmt.Errorf("ring: keys: %w", err)
	}
	for _, old := range slices.Clone(s.ring.GetKeys()) {
		if !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, old) }) {
			err = errors.Join(err, s.ring.RemoveKey(old))
		}
	}
	s.list = slices.Clone(list)
	return err
}

// gossipKeys derives the encryption keys from the secrets.
func gossipKeys(list [][]byte) (keys [][]byte, err error) {
	for _, secret := range list {
		key, err := hkdf.Key(sha256.New, secret, nil, "twotier gossip", 32)
		if err != nil {
			return nil, fmt.Errorf("ring: key: %w", err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
