// Package distinct is the vocabulary of the different values of keys: the devices of an account,
// the cards of an address. An [Op] adds values, or counts them. A [Counter] executes it as an
// operation with a check of the kind twotier.ValuesCheck.
package distinct
