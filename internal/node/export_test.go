package node

// RequestKinds returns all kinds of requests.
func RequestKinds() []RequestKind { return requestKinds[:] }
