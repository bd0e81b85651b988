/* placeholder */
extern int ithaca_placeholder;
