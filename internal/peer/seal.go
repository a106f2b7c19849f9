package peer

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// errSecret says that a message was not made with our secret, or is damaged.
var errSecret = errors.New("the message is not from a node with the same secret")

// keyring makes the ciphers for pairs of processes.
type keyring struct {
	mu      sync.Mutex
	secrets [][]byte // the first seals, each opens; none: messages are plain
	keys    map[way]cipher.AEAD
}

// way is what a key is for: what one process says to another, under a secret.
type way struct{ use, from, to, secret string }

// maxKeys bounds the ciphers that are kept: processes come and go, and so do secrets.
const maxKeys = 4096

func newKeyring(secret []byte) *keyring {
	k := &keyring{keys: map[way]cipher.AEAD{}}
	if len(secret) > 0 {
		k.secrets = [][]byte{secret}
	}
	return k
}

// set replaces the secrets. Messages that are under way can be read as long as theirs is among the
// new ones.
func (k *keyring) set(secrets [][]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.secrets = slices.Clone(secrets)
	clear(k.keys)
}

// list returns the secrets.
func (k *keyring) list() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.secrets
}

// overhead is what sealing adds to a message, at the most.
const overhead = 8 + 16

// first returns the secret that seals what nobody asked for under another one, nil without secrets.
func first(secrets [][]byte) []byte {
	if len(secrets) == 0 {
		return nil
	}
	return secrets[0]
}

// key returns the cipher for what one process says to another under a secret, nil without one.
func (k *keyring) key(secret []byte, use, from, to string) (cipher.AEAD, error) {
	if len(secret) == 0 {
		return nil, nil
	}
	w := way{use, from, to, string(secret)}
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.keys[w]; c != nil {
		return c, nil
	}
	// The lengths keep two pairs of names from running together to the same text.
	info := fmt.Sprintf("twotier peer %s %d %s %d %s", use, len(from), from, len(to), to)
	raw, err := hkdf.Key(sha256.New, secret, nil, info, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	c, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	if len(k.keys) >= maxKeys {
		clear(k.keys)
	}
	k.keys[w] = c
	return c, nil
}

// open returns the text of a message that one process sent to another, and the secret that it was
// sealed with. It may be in place.
func (k *keyring) open(use, from, to string, b, bound []byte) (text, secret []byte, err error) {
	secrets := k.list()
	if len(secrets) == 0 {
		return b, nil, nil
	}
	for i, secret := range secrets {
		sealed := b
		if i < len(secrets)-1 {
			sealed = slices.Clone(b) // what can't be opened is erased
		}
		key, err := k.key(secret, use, from, to)
		if err != nil {
			return nil, nil, err
		}
		if text, err = unseal(key, sealed, bound); err == nil {
			return text, secret, nil
		}
	}
	return nil, first(secrets), errSecret
}

// counter numbers the messages that one process seals: no number is used twice under a key, as GCM
// demands. Process names are never used twice, so no other process has the keys.
type counter struct{ n atomic.Uint64 }

// seal appends the number of the message and its sealed text to b.
func (c *counter) seal(key cipher.AEAD, b, text, bound []byte) []byte {
	if key == nil {
		return append(b, text...)
	}
	var nonce [12]byte
	binary.BigEndian.PutUint64(nonce[4:], c.n.Add(1))
	return key.Seal(append(b, nonce[4:]...), nonce[:], text, bound)
}

// unseal returns the text of a sealed message, in place.
func unseal(key cipher.AEAD, b, bound []byte) ([]byte, error) {
	if key == nil {
		return b, nil
	}
	if len(b) < overhead {
		return nil, errSecret
	}
	var nonce [12]byte
	copy(nonce[4:], b[:8])
	text, err := key.Open(b[8:8], nonce[:], b[8:], bound)
	if err != nil {
		return nil, errSecret
	}
	return text, nil
}
