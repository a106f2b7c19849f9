package peer

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// Pass returns a pass for a message of size bytes, as text for a header: with it, a process proves
// to a node that it has the secret before the node reads its message. A pass is for a message of
// one length. Without a secret, passes are empty.
//
// An eavesdropper can send another body of that length with a copied pass. That body is no valid
// message, so the node refuses it after reading it.
func (c *Client) Pass(size int) string {
	key, err := c.keys.cipherFor(sealingSecret(c.keys.list()), usePass, c.opt.Self, "")
	if key == nil || err != nil {
		return ""
	}
	b := c.count.appendNumber(key, appendBytes([]byte{version}, c.opt.Self))
	return base64.RawURLEncoding.EncodeToString(seal(key, b, len(b), sizeData(size)))
}

// usePass is the use of the keys for passes. These keys name no receiver: a message for an earlier
// process at the address gets an answer, too.
const usePass = "pass"

// sizeData returns the data that ties a pass to a message of size bytes.
func sizeData(size int) []byte { return binary.AppendUvarint(nil, uint64(size)) }

// errPass means that the sender of a message did not prove to be a node.
var errPass = errors.New("the message comes without a valid pass")

// Admit returns nil if a node with one of the secrets made the pass for a message of that size, or
// if there are no secrets.
func (s *Server) Admit(pass string, size int) error {
	if len(s.keys.list()) == 0 {
		return nil
	}
	if err := s.admit(pass, size); err != nil {
		return s.logRefusal(errPass)
	}
	return nil
}

func (s *Server) admit(pass string, size int) error {
	if size < 0 || len(pass) > 2*maxName {
		return errPass
	}
	raw, err := base64.RawURLEncoding.DecodeString(pass)
	if err != nil {
		return err
	}
	from, rest, err := readSender(raw)
	if err != nil {
		return err
	}
	_, _, err = s.keys.open(usePass, from, "", rest, sizeData(size))
	return err
}
