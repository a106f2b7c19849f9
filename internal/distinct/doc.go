// Package distinct is the vocabulary of the different values of keys: the devices of an account,
// the cards of an address. An [Op] adds values, or counts them. A counter executes it as a check of
// twotier.ValuesCheck, see [Op.Request].
package distinct
