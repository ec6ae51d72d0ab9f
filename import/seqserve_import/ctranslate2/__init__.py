"""Models of CTranslate2, and the packages of Argos that hold one."""
